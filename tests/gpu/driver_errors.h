/* driver_errors.h: the error codes of the CUDA driver and of the HIP runtime, for the stub drivers and their tests. */
#ifndef TQ_DRIVER_ERRORS_H
#define TQ_DRIVER_ERRORS_H

/* clang-format off */
#define CUDA_ERRORS(X)                                                                                                 \
    X(1, "CUDA_ERROR_INVALID_VALUE") X(2, "CUDA_ERROR_OUT_OF_MEMORY") X(3, "CUDA_ERROR_NOT_INITIALIZED")               \
    X(4, "CUDA_ERROR_DEINITIALIZED") X(5, "CUDA_ERROR_PROFILER_DISABLED") X(6, "CUDA_ERROR_PROFILER_NOT_INITIALIZED")  \
    X(7, "CUDA_ERROR_PROFILER_ALREADY_STARTED") X(8, "CUDA_ERROR_PROFILER_ALREADY_STOPPED")                            \
    X(34, "CUDA_ERROR_STUB_LIBRARY") X(36, "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER")                                    \
    X(46, "CUDA_ERROR_DEVICE_UNAVAILABLE") X(100, "CUDA_ERROR_NO_DEVICE") X(101, "CUDA_ERROR_INVALID_DEVICE")          \
    X(102, "CUDA_ERROR_DEVICE_NOT_LICENSED") X(200, "CUDA_ERROR_INVALID_IMAGE") X(201, "CUDA_ERROR_INVALID_CONTEXT")   \
    X(202, "CUDA_ERROR_CONTEXT_ALREADY_CURRENT") X(205, "CUDA_ERROR_MAP_FAILED") X(206, "CUDA_ERROR_UNMAP_FAILED")     \
    X(207, "CUDA_ERROR_ARRAY_IS_MAPPED") X(208, "CUDA_ERROR_ALREADY_MAPPED") X(209, "CUDA_ERROR_NO_BINARY_FOR_GPU")    \
    X(210, "CUDA_ERROR_ALREADY_ACQUIRED") X(211, "CUDA_ERROR_NOT_MAPPED") X(212, "CUDA_ERROR_NOT_MAPPED_AS_ARRAY")     \
    X(213, "CUDA_ERROR_NOT_MAPPED_AS_POINTER") X(214, "CUDA_ERROR_ECC_UNCORRECTABLE")                                  \
    X(215, "CUDA_ERROR_UNSUPPORTED_LIMIT") X(216, "CUDA_ERROR_CONTEXT_ALREADY_IN_USE")                                 \
    X(217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED") X(218, "CUDA_ERROR_INVALID_PTX")                                      \
    X(219, "CUDA_ERROR_INVALID_GRAPHICS_CONTEXT") X(220, "CUDA_ERROR_NVLINK_UNCORRECTABLE")                            \
    X(221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND") X(222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION")                           \
    X(223, "CUDA_ERROR_JIT_COMPILATION_DISABLED") X(224, "CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY")                       \
    X(225, "CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC") X(226, "CUDA_ERROR_CONTAINED") X(300, "CUDA_ERROR_INVALID_SOURCE")   \
    X(301, "CUDA_ERROR_FILE_NOT_FOUND") X(302, "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND")                            \
    X(303, "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED") X(304, "CUDA_ERROR_OPERATING_SYSTEM")                               \
    X(400, "CUDA_ERROR_INVALID_HANDLE") X(401, "CUDA_ERROR_ILLEGAL_STATE") X(402, "CUDA_ERROR_LOSSY_QUERY")            \
    X(500, "CUDA_ERROR_NOT_FOUND") X(600, "CUDA_ERROR_NOT_READY") X(700, "CUDA_ERROR_ILLEGAL_ADDRESS")                 \
    X(701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES") X(702, "CUDA_ERROR_LAUNCH_TIMEOUT")                                   \
    X(703, "CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING") X(704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED")                \
    X(705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED") X(708, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE")                           \
    X(709, "CUDA_ERROR_CONTEXT_IS_DESTROYED") X(710, "CUDA_ERROR_ASSERT") X(711, "CUDA_ERROR_TOO_MANY_PEERS")          \
    X(712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED") X(713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED")                \
    X(714, "CUDA_ERROR_HARDWARE_STACK_ERROR") X(715, "CUDA_ERROR_ILLEGAL_INSTRUCTION")                                 \
    X(716, "CUDA_ERROR_MISALIGNED_ADDRESS") X(717, "CUDA_ERROR_INVALID_ADDRESS_SPACE") X(718, "CUDA_ERROR_INVALID_PC") \
    X(719, "CUDA_ERROR_LAUNCH_FAILED") X(720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE")                               \
    X(721, "CUDA_ERROR_TENSOR_MEMORY_LEAK") X(800, "CUDA_ERROR_NOT_PERMITTED") X(801, "CUDA_ERROR_NOT_SUPPORTED")      \
    X(802, "CUDA_ERROR_SYSTEM_NOT_READY") X(803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH")                                  \
    X(804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE") X(805, "CUDA_ERROR_MPS_CONNECTION_FAILED")                     \
    X(806, "CUDA_ERROR_MPS_RPC_FAILURE") X(807, "CUDA_ERROR_MPS_SERVER_NOT_READY")                                     \
    X(808, "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED") X(809, "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED")                      \
    X(810, "CUDA_ERROR_MPS_CLIENT_TERMINATED") X(811, "CUDA_ERROR_CDP_NOT_SUPPORTED")                                  \
    X(812, "CUDA_ERROR_CDP_VERSION_MISMATCH") X(900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED")                          \
    X(901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED") X(902, "CUDA_ERROR_STREAM_CAPTURE_MERGE")                          \
    X(903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED") X(904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED")                         \
    X(905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION") X(906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT")                         \
    X(907, "CUDA_ERROR_CAPTURED_EVENT") X(908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD") X(909, "CUDA_ERROR_TIMEOUT")  \
    X(910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE") X(911, "CUDA_ERROR_EXTERNAL_DEVICE")                                \
    X(912, "CUDA_ERROR_INVALID_CLUSTER_SIZE") X(913, "CUDA_ERROR_FUNCTION_NOT_LOADED")                                 \
    X(914, "CUDA_ERROR_INVALID_RESOURCE_TYPE") X(915, "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION")                     \
    X(916, "CUDA_ERROR_KEY_ROTATION") X(999, "CUDA_ERROR_UNKNOWN")

#define HIP_ERRORS(X)                                                                                                  \
    X(1, "hipErrorInvalidValue") X(2, "hipErrorOutOfMemory") X(3, "hipErrorNotInitialized")                            \
    X(4, "hipErrorDeinitialized") X(5, "hipErrorProfilerDisabled") X(6, "hipErrorProfilerNotInitialized")              \
    X(7, "hipErrorProfilerAlreadyStarted") X(8, "hipErrorProfilerAlreadyStopped") X(9, "hipErrorInvalidConfiguration") \
    X(12, "hipErrorInvalidPitchValue") X(13, "hipErrorInvalidSymbol") X(17, "hipErrorInvalidDevicePointer")            \
    X(21, "hipErrorInvalidMemcpyDirection") X(35, "hipErrorInsufficientDriver") X(52, "hipErrorMissingConfiguration")  \
    X(53, "hipErrorPriorLaunchFailure") X(98, "hipErrorInvalidDeviceFunction") X(100, "hipErrorNoDevice")              \
    X(101, "hipErrorInvalidDevice") X(200, "hipErrorInvalidImage") X(201, "hipErrorInvalidContext")                    \
    X(202, "hipErrorContextAlreadyCurrent") X(205, "hipErrorMapFailed") X(206, "hipErrorUnmapFailed")                  \
    X(207, "hipErrorArrayIsMapped") X(208, "hipErrorAlreadyMapped") X(209, "hipErrorNoBinaryForGpu")                   \
    X(210, "hipErrorAlreadyAcquired") X(211, "hipErrorNotMapped") X(212, "hipErrorNotMappedAsArray")                   \
    X(213, "hipErrorNotMappedAsPointer") X(214, "hipErrorECCNotCorrectable") X(215, "hipErrorUnsupportedLimit")        \
    X(216, "hipErrorContextAlreadyInUse") X(217, "hipErrorPeerAccessUnsupported") X(218, "hipErrorInvalidKernelFile")  \
    X(219, "hipErrorInvalidGraphicsContext") X(300, "hipErrorInvalidSource") X(301, "hipErrorFileNotFound")            \
    X(302, "hipErrorSharedObjectSymbolNotFound") X(303, "hipErrorSharedObjectInitFailed")                              \
    X(304, "hipErrorOperatingSystem") X(400, "hipErrorInvalidHandle") X(401, "hipErrorIllegalState")                   \
    X(500, "hipErrorNotFound") X(600, "hipErrorNotReady") X(700, "hipErrorIllegalAddress")                             \
    X(701, "hipErrorLaunchOutOfResources") X(702, "hipErrorLaunchTimeOut") X(704, "hipErrorPeerAccessAlreadyEnabled")  \
    X(705, "hipErrorPeerAccessNotEnabled") X(708, "hipErrorSetOnActiveProcess") X(709, "hipErrorContextIsDestroyed")   \
    X(710, "hipErrorAssert") X(712, "hipErrorHostMemoryAlreadyRegistered") X(713, "hipErrorHostMemoryNotRegistered")   \
    X(719, "hipErrorLaunchFailure") X(720, "hipErrorCooperativeLaunchTooLarge") X(801, "hipErrorNotSupported")         \
    X(900, "hipErrorStreamCaptureUnsupported") X(901, "hipErrorStreamCaptureInvalidated")                              \
    X(902, "hipErrorStreamCaptureMerge") X(903, "hipErrorStreamCaptureUnmatched")                                      \
    X(904, "hipErrorStreamCaptureUnjoined") X(905, "hipErrorStreamCaptureIsolation")                                   \
    X(906, "hipErrorStreamCaptureImplicit") X(907, "hipErrorCapturedEvent") X(908, "hipErrorStreamCaptureWrongThread") \
    X(910, "hipErrorGraphExecUpdateFailure") X(999, "hipErrorUnknown") X(1052, "hipErrorRuntimeMemory")                \
    X(1053, "hipErrorRuntimeOther")
/* clang-format on */

#endif
