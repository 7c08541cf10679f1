# tq_code_objects(): compiles CUDA and HIP sources to code objects, one each, which modules.c of their directory embeds.
# Copied by tqgen; do not edit.

set(TQ_CUDA_COMPILER "" CACHE STRING "nvcc, or clang (with ptxas of CUDA 12.8 or later); empty: nvcc if there is one")

set(TQ_CLANGS clang-22 clang-21 clang-20)
set(TQ_CUDA_HINTS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda)

function(tq_need variable message)
  if(NOT ${variable})
    message(FATAL_ERROR "${message}, or say where it is: -D${variable}=PATH")
  endif()
endfunction()

function(tq_find_cuda)
  if(NOT TQ_CUDA_COMPILER STREQUAL "clang")
    find_program(TQ_NVCC nvcc HINTS ${TQ_CUDA_HINTS} PATH_SUFFIXES bin)
  endif()
  if(TQ_CUDA_COMPILER STREQUAL "nvcc")
    tq_need(TQ_NVCC "CUDA kernels: nvcc was not found. Install the CUDA Toolkit, 12.8 or later")
  elseif(NOT TQ_NVCC OR TQ_CUDA_COMPILER STREQUAL "clang")
    find_program(TQ_CUDA_CLANG NAMES ${TQ_CLANGS})
    find_program(TQ_PTXAS ptxas HINTS ${TQ_CUDA_HINTS} PATH_SUFFIXES bin)
    tq_need(TQ_CUDA_CLANG "CUDA kernels: no compiler was found. Install the CUDA Toolkit, 12.8 or later, or clang-22")
    tq_need(TQ_PTXAS "CUDA kernels: ptxas was not found. Install the CUDA Toolkit, or nvidia-cuda-nvcc of PyPI")
  endif()
endfunction()

function(tq_find_hip)
  find_program(TQ_HIP_COMPILER NAMES ${TQ_CLANGS} clang-19 amdclang++ hipcc
    HINTS ENV ROCM_PATH /opt/rocm PATH_SUFFIXES bin llvm/bin)
  tq_need(TQ_HIP_COMPILER "HIP kernels: no compiler was found. Install clang-22 and lld-22, or ROCm 6.3 or later")
endfunction()

# vendor: cuda or hip; processor: as compilers call it; then the sources in directory.
function(tq_code_objects vendor processor directory)
  set(in "${CMAKE_CURRENT_SOURCE_DIR}/${directory}")
  set(out "${CMAKE_CURRENT_BINARY_DIR}/${directory}")
  file(MAKE_DIRECTORY "${out}")
  file(GLOB headers "${in}/*.h" "${in}/gpu/*.h" "${CMAKE_CURRENT_SOURCE_DIR}/*.h")

  # -ffp-contract=off and -fmad=false: only tqg_fma fuses, as everywhere.
  set(options -std=c++17 -I "${CMAKE_CURRENT_SOURCE_DIR}")
  set(clang_options -O2 -fno-vectorize -fno-slp-vectorize ${options} -ffp-contract=off -Wall -Wextra)
  set(nvcc_options -O3 ${options} -fmad=false)
  if(TQ_WERROR)
    list(APPEND clang_options -Werror)
    list(APPEND nvcc_options --Werror=all-warnings)
  endif()
  if(vendor STREQUAL "hip")
    tq_find_hip()
  else()
    tq_find_cuda()
  endif()

  set(objects)
  foreach(source IN LISTS ARGN)
    get_filename_component(name "${source}" NAME_WE)
    set(object "${out}/${name}.bin")
    if(vendor STREQUAL "hip")
      set(commands COMMAND "${TQ_HIP_COMPILER}" -x hip --offload-arch=${processor} --offload-device-only
        --no-gpu-bundle-output -nogpuinc -nogpulib -mcode-object-version=5 ${clang_options}
        "${in}/${source}" -o "${object}")
    elseif(TQ_NVCC AND NOT TQ_CUDA_COMPILER STREQUAL "clang")
      set(commands COMMAND "${TQ_NVCC}" -x cu -cubin -arch=${processor} ${nvcc_options}
        "${in}/${source}" -o "${object}")
    else()
      set(commands COMMAND "${TQ_CUDA_CLANG}" -x cuda --cuda-gpu-arch=${processor} --cuda-device-only -S
        --cuda-path=/none -nocudainc -nocudalib --cuda-feature=+ptx87 ${clang_options}
        "${in}/${source}" -o "${out}/${name}.ptx"
        COMMAND "${TQ_PTXAS}" -arch=${processor} "${out}/${name}.ptx" -o "${object}")
    endif()
    add_custom_command(OUTPUT "${object}" ${commands} DEPENDS "${in}/${source}" ${headers}
      COMMENT "Compiling ${directory}/${source}" VERBATIM)
    list(APPEND objects "${object}")
  endforeach()

  set_property(SOURCE "${directory}/modules.c" APPEND PROPERTY OBJECT_DEPENDS ${objects})
  set_property(SOURCE "${directory}/modules.c" APPEND PROPERTY COMPILE_DEFINITIONS "TQ_MODULES=\"${out}\"")
endfunction()
