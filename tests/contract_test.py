#!/usr/bin/env python3
"""The calls, fields and exit statuses that scripts rely on.   usage: contract_test.py PROJECT BUILD [TestCase.test ...]

Adding fields is fine; renaming one breaks somebody's script and this test.
"""
import filecmp
import glob
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

project, build = map(os.path.abspath, sys.argv[1:3])
TQGEN = os.path.join(project, 'gen', 'tqgen')
TQ = os.path.join(build, 'tq')
SHAPE = ['--head-dim', '128', '--gqa', '4', '--k', 'turbo3', '--v', 'turbo3']


def tensor(which):
    found = sorted(glob.glob(os.path.join(project, 'tests', 'kv', '*.%s.npy' % which)))
    return found[0] if found else None


def rows_of(data):
    """A list, an object with "rows", or one row."""
    if isinstance(data, dict):
        return data.get('rows', [data])
    return data


class Contract(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def run_command(self, *argv, status=0, **environment):
        done = subprocess.run(argv, capture_output=True, text=True, env={**os.environ, **environment})
        self.assertEqual(done.returncode, status, '%s:\n%s%s' % (' '.join(argv), done.stdout, done.stderr))
        return done

    def refused(self, *argv, naming):
        """Status 2, a sentence on stderr that names what was wrong, nothing on stdout."""
        done = self.run_command(*argv, status=2)
        self.assertEqual(done.stdout, '')
        self.assertIn(naming, done.stderr)

    def rows(self, *argv, fields):
        data = json.loads(self.run_command(*argv, '--json').stdout)
        rows = rows_of(data)
        self.assertTrue(rows)
        for row in rows:
            self.assertLessEqual(set(fields.split()), set(row), argv)
        return rows


class Generator(Contract):
    def generate(self, name, *arguments, **environment):
        self.run_command(TQGEN, *arguments, '-o', self.path(name), **environment)
        return self.path(name)

    def test_generates_what_axes_select(self):
        folder = self.generate('one', '--arch', 'x86-64-v3', *SHAPE)
        self.assertTrue(os.path.exists(os.path.join(folder, 'CMakeLists.txt')))
        self.assertTrue(os.path.exists(os.path.join(folder, 'manifest.json')))

    def test_writes_nothing_on_bad_arguments(self):
        for bad in (['--arch', 'gfx9999'], ['--arch', 'x86-64-v3', '--head-dim', '63'],
                    ['--arch', 'x86-64-v3', '--k', 'turbo9'], ['--arch', 'c', '--gqa', '0'], ['--nonsense']):
            self.refused(TQGEN, *bad, '-o', self.path('bad'), naming=bad[-1].lstrip('-'))
            self.assertFalse(os.path.exists(self.path('bad')))

    def test_does_not_write_through_a_file(self):
        open(self.path('file'), 'w').close()
        done = subprocess.run([TQGEN, '--arch', 'c', *SHAPE, '-o', self.path('file/below')], capture_output=True)
        self.assertNotEqual(done.returncode, 0)

    def test_is_deterministic(self):
        axes = ['--arch', 'c', '--head-dim', '64', '--gqa', '1']
        first = self.generate('first', *axes, LC_ALL='C', TZ='UTC')
        second = self.generate('second/deeper', *axes, LC_ALL='C.UTF-8', TZ='Asia/Tokyo')
        different = []
        for base, _, files in os.walk(first):
            for file in files:
                a = os.path.join(base, file)
                if not filecmp.cmp(a, os.path.join(second, os.path.relpath(a, first)), shallow=False):
                    different.append(a)
        self.assertEqual(different, [])

    def test_leaves_unchanged_files_alone(self):
        axes = ['--arch', 'c', *SHAPE]
        folder = self.generate('twice', *axes)
        before = {f: os.stat(os.path.join(folder, f)).st_mtime_ns for f in os.listdir(folder)}
        self.generate('twice', *axes)
        self.assertEqual(before, {f: os.stat(os.path.join(folder, f)).st_mtime_ns for f in os.listdir(folder)})

    def test_lists(self):
        rows = self.rows(TQGEN, 'list', fields='name op arch head_dim k v')
        self.run_command(TQGEN, 'show', rows[0]['name'])
        self.refused(TQGEN, 'show', 'tq_nonsense', naming='tq_nonsense')
        self.rows(TQGEN, 'formats', fields='name bits block bytes_per_value')
        self.rows(TQGEN, 'archs', fields='name')

    def test_check_finds_drift(self):
        folder = self.generate('drift', '--arch', 'c', *SHAPE)
        self.run_command(TQGEN, 'check', folder)
        with open(os.path.join(folder, 'builtin.c'), 'a') as file:
            file.write('/* by hand */\n')
        self.assertIn('builtin.c', ''.join(self.run_command(TQGEN, 'check', folder, status=1).__dict__[k]
                                           for k in ('stdout', 'stderr')))


class Tool(Contract):
    def test_info_and_plan(self):
        self.run_command(TQ, 'info')
        self.rows(TQ, 'info', fields='')
        self.rows(TQ, 'plan', '--op', 'decode', *SHAPE, fields='variant why')

    def test_bench(self):
        self.rows(TQ, 'bench', '--op', 'decode', *SHAPE, '--n-kv', '2048',
                  fields='variant op head_dim gqa k v layout n_kv device median_ns ns_per_key_head ratio_f16 '
                         'read_fraction madds_per_byte gmadds_per_s')
        self.refused(TQ, 'bench', *SHAPE, '--layout', 'rows,nonsense', naming='nonsense')

    def test_bench_every_op(self):
        """On tiles, beside f16 rows but for repack, where there are none."""
        for op, others in (('append', 1), ('dequantise', 1), ('prefill', 1), ('repack', 0)):
            gqa = SHAPE[2:4] if op == 'prefill' else []
            rows = self.rows(TQ, 'bench', '--op', op, *SHAPE[:2], *gqa, '--k', 'turbo3', '--layout', 'tile_cpu',
                             '--n-kv', '128', '--budget', '0.01', fields='variant ratio_f16')
            self.assertEqual([row['op'] for row in rows], [op] * (1 + others))
            self.assertEqual(rows[0]['ratio_f16'] is None, not others)

    def test_bench_scale_modes_and_bias(self):
        """Every scale mode that a format has, with and without a score bias; a format without modes comes once."""
        rows = self.rows(TQ, 'bench', *SHAPE[:4], '--k', 'turbo3,gain3', '--scales', 'nc,searched', '--bias', '0,8',
                         '--n-kv', '256', '--budget', '0.01', fields='scales bias_pairs')
        found = [(row['k'], row['scales'], row['bias_pairs']) for row in rows]
        self.assertEqual(found, [('turbo3', 'nc', 0), ('turbo3', 'nc', 8), ('turbo3', 'searched', 0),
                                 ('turbo3', 'searched', 8), ('gain3', 'default', 0), ('gain3', 'default', 8),
                                 ('f16', 'default', 0)])
        self.refused(TQ, 'bench', *SHAPE, '--scales', 'best', naming='best')
        self.refused(TQ, 'bench', *SHAPE[:4], '--op', 'append', '--k', 'turbo3', '--bias', '8', naming='--bias')

    @unittest.skipUnless(shutil.which('gnuplot'), 'gnuplot draws plots')
    def test_bench_plots(self):
        """A roofline of decode, bars of what has no fixed number of multiply-adds."""
        for axes, texts in ((['--op', 'decode', *SHAPE], ['turbo3 d128 g4', 'f16 d128 g4', 'int16: ', 'per byte']),
                            (['--op', 'dequantise', *SHAPE[:2], '--k', 'turbo3'], ['turbo3 d128', 'ns per key'])):
            plot = self.path('plot.svg')
            self.run_command(TQ, 'bench', *axes, '--n-kv', '256', '--budget', '0.01', '--plot', plot)
            with open(plot) as file:
                svg = file.read()
            for text in texts:
                self.assertIn(text, svg)

    def test_tune_and_use_its_file(self):
        tuning = self.path('tuning')
        rows = self.rows(TQ, 'tune', '--op', 'decode', *SHAPE, '--budget', '3', '-o', tuning,
                         fields='variant median_ns verified')
        self.assertTrue(all(row['verified'] in (True, 'yes', 1) for row in rows), rows)
        plan = json.loads(self.run_command(TQ, 'plan', '--op', 'decode', *SHAPE, '--json', TQ_TUNING=tuning).stdout)
        self.assertIn(tuning, rows_of(plan)[0]['why'])

    def test_tune_tiles(self):
        """Of every op, the CPU's tiles are verified as such."""
        for op in ('decode', 'prefill', 'append', 'dequantise', 'repack'):
            shape = SHAPE if op in ('decode', 'prefill') else [*SHAPE[:2], '--k', 'turbo3']
            rows = self.rows(TQ, 'tune', '--op', op, *shape, '--layout', 'tile_cpu', '--n-kv', '200', '--kv-heads', '1',
                             '--budget', '0.05', '-o', self.path('tuning'), fields='variant verified')
            self.assertTrue(all(row['verified'] in (True, 'yes', 1) for row in rows), rows)

    def test_ab(self):
        self.rows(TQ, 'ab', 'turbo3/turbo3', 'f16/f16', '--head-dim', '128', '--gqa', '4', '--n-kv', '1024',
                  fields='a b ratio low high verdict')
        row, = self.rows(TQ, 'ab', 'turbo3/turbo3/tile_cpu', 'turbo3/turbo3', '--head-dim', '128', '--gqa', '4', '--n-kv',
                         '1024', '--budget', '0.05', fields='variant_a variant_b')
        self.assertIn('_tile_cpu__', row['variant_a'])
        self.assertIn('_rows__', row['variant_b'])

    def test_ggml(self):
        """Against a stub of it."""
        call = [TQ, 'ggml', *SHAPE, '--n-kv', '96', '--kv-heads', '2', '--budget', '0.01',
                '--ggml', os.path.join(build, 'tests', 'ggml')]
        rows = self.rows(*call, fields='kernel ggml k v layout gqa n_kv median_ns ns_per_key_head bytes_per_key_head '
                                       'ratio_ggml_f16 ratio_ggml_q8_0 ratio_ggml_q4_0 error')
        self.assertEqual(len(rows), 1 + 3 * 2)
        for row in rows[1:]:
            self.assertLess(row['error'], 1e-9)
        self.assertIn(1, [row['ratio_ggml_q8_0'] for row in rows if row['k'] == 'q8_0'])
        self.rows(*call, '--threads', '2', fields='kernel threads')
        self.run_command(*call, status=1, TQ_STUB_GGML='wrong')

    def test_simt_device(self):
        """GPU kernels on the CPU: the same commands, where this build has such kernels."""
        there = {row['target'] for row in json.loads(self.run_command(TQ, 'info', '--json').stdout)['variants']
                 if row['device'] == 'simt:32' and row['op'] == 'decode'}
        known = self.rows(TQGEN, 'list', '--set', 'simt', fields='name op arch') if there else []
        decode = next((row for row in known if row['op'] == 'decode' and row['arch'] in there), None)
        if not decode:
            self.skipTest('no SIMT kernels in this build')
        shape = ['--head-dim', str(decode['head_dim']), '--gqa', decode['name'].split('_g')[1].split('_')[0],
                 '--k', decode['k'], '--v', decode['v'], '--layout', decode['layout'], '--device', 'simt:32']
        plan = self.rows(TQ, 'plan', *shape, fields='variant why device')
        self.assertEqual(plan[0]['device'], 'simt:32')
        rows = self.rows(TQ, 'tune', *shape, '--budget', '0.2', '-o', self.path('tuning'), fields='variant verified')
        self.assertTrue(all(row['verified'] for row in rows), rows)
        self.rows(TQ, 'ab', decode['name'], decode['name'], '--samples', '6', fields='ratio verdict')
        for row in self.rows(TQ, 'bench', *shape, '--budget', '0.05', fields='median_ns read_fraction'):
            self.assertIsNone(row['read_fraction'])
        self.refused(TQ, 'plan', *shape[:-1], 'cuda:7', naming='simt:32')

    def test_bad_arguments(self):
        self.refused(TQ, 'nonsense', naming='nonsense')
        self.refused(TQ, 'plan', '--head-dim', '-1', naming='head-dim')
        self.refused(TQ, 'plan', '--op', 'decode', '--head-dim', '128', '--gqa', '4', '--k', 'turbo9', '--v', 'turbo3',
                     naming='turbo9')
        self.refused(TQ, 'bench', '--n-kv', 'many', naming='many')
        self.refused(TQ, 'ab', 'turbo3/turbo3', naming='ab')
        self.refused(TQ, 'ggml', '--ggml', self.folder, naming='pip install llama-cpp-python')

    def test_corrupt_tuning_file(self):
        with open(self.path('corrupt'), 'wb') as file:
            file.write(b'\x7fELF nonsense\n')
        done = subprocess.run([TQ, 'plan', '--op', 'decode', *SHAPE], capture_output=True, text=True,
                              env={**os.environ, 'TQ_TUNING': self.path('corrupt')})
        self.assertNotEqual(done.returncode, 0)
        self.assertIn('corrupt:1', done.stderr)

    def test_unwritable_output(self):
        done = subprocess.run([TQ, 'tune', '--op', 'decode', *SHAPE, '--budget', '1', '-o', self.path('no/such/file')],
                              capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn('no/such/file', done.stderr)


@unittest.skipUnless(tensor('q') and tensor('k') and tensor('v'), 'no tensors in tests/kv')
class Eval(Contract):
    FIELDS = 'format bytes_per_value k_relmse v_relmse kl top1 out_err'

    def npy(self, name, shape, descr='<f2', fortran='False', values=None):
        n = 1
        for extent in shape:
            n *= extent
        header = "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }" % (descr, fortran, tuple(shape))
        header += ' ' * (-(10 + len(header) + 1) % 64) + '\n'
        with open(self.path(name), 'wb') as file:
            file.write(b'\x93NUMPY\x01\x00' + struct.pack('<H', len(header)) + header.encode())
            file.write(bytes(values if values is not None else 2 * n))
        return self.path(name)

    def test_ranks_formats(self):
        rows = self.rows(TQ, 'eval', '--q', tensor('q'), '--k', tensor('k'), '--v', tensor('v'), fields=self.FIELDS)
        by_name = {row['format']: row for row in rows}
        self.assertLess(by_name['f16']['kl'], 1e-5)
        for better, worse in (('turbo4:none', 'turbo3:none'), ('turbo3:none', 'turbo2:none'),
                              ('turbo3:searched', 'turbo3:none'), ('gain3', 'turbo3:searched'),
                              ('gain3+centre', 'gain3')):
            self.assertLess(by_name[better]['kl'], by_name[worse]['kl'])

    def test_bad_tensors(self):
        good = self.npy('good.npy', (1, 8, 64))
        cases = [
            ('/dev/null', '/dev/null'),
            (self.path('missing.npy'), 'missing.npy'),
            (self.npy('truncated.npy', (1, 8, 64), values=100), 'truncated.npy'),
            (self.npy('dtype.npy', (1, 8, 64), descr='<i4', values=4 * 512), 'i4'),
            (self.npy('fortran.npy', (1, 8, 64), fortran='True'), 'ortran'),
            (self.npy('rank.npy', (8, 64)), 'rank.npy'),
            (self.npy('head_dim.npy', (1, 8, 32)), 'shape'),
            (self.npy('tokens.npy', (1, 9, 64)), 'shape'),
        ]
        for bad, naming in cases:
            with self.subTest(bad):
                self.refused(TQ, 'eval', '--q', good, '--k', bad, '--v', good, naming=naming)


if __name__ == '__main__':
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
