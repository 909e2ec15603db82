// The package as others get it.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import * as crawlee from 'proxylease/crawlee';
import * as core from 'proxylease';

const run = promisify(execFile);
const root = fileURLToPath(new URL('..', import.meta.url));

test('a program in TypeScript compiles against the types', async () => {
    const flags = ['--noEmit', '--strict', '--skipLibCheck', '--target', 'es2022', '--lib', 'es2022,esnext.disposable,dom', '--module', 'nodenext', '--moduleResolution', 'nodenext', '--types', 'node', '--preserveSymlinks'];
    const { stdout } = await run(process.execPath, [path.join(root, 'node_modules/typescript/bin/tsc'), ...flags, path.join(root, 'test/types.ts')], { cwd: root })
        .catch((error) => error);
    assert.equal(stdout, '');
});

test('the types declare what the package exports', () => {
    for (const [file, module] of [['index', core], ['crawlee', crawlee]]) {
        const text = fs.readFileSync(path.join(root, `types/${file}.d.ts`), 'utf8');
        const declared = [...text.matchAll(/^export (?:class|function|const) (\w+)/gm)].map((match) => match[1]);
        assert.deepEqual(Object.keys(module).sort(), declared.sort());
        for (const [name, value] of Object.entries(module)) {
            if (!/^(Client|Lease|LeasedSessions)$/.test(name)) continue;
            const body = text.slice(text.indexOf(`export class ${name} {`)).split('\n}')[0];
            for (const method of [...body.matchAll(/^ {4}(\w+)(?:<[^(]*>)?\(/gm)].map((match) => match[1])) {
                assert.equal(typeof value.prototype[method], 'function', `${name}.${method}`);
            }
        }
    }
});

test('npm pack makes a package without dependencies that runs by itself', async () => {
    const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'proxylease-'));
    try {
        const { stdout } = await run('npm', ['pack', '--json', '--ignore-scripts', '--offline', '--pack-destination', dir], { cwd: root });
        const packed = JSON.parse(stdout);
        const { filename, files } = Array.isArray(packed) ? packed[0] : Object.values(packed)[0];
        assert.deepEqual(files.map((file) => file.path).filter((name) => /^(test|node_modules)/.test(name)), []);
        fs.mkdirSync(path.join(dir, 'node_modules/proxylease'), { recursive: true });
        await run('tar', ['-xzf', path.join(dir, filename), '--strip-components=1', '-C', path.join(dir, 'node_modules/proxylease')]);
        const manifest = JSON.parse(fs.readFileSync(path.join(dir, 'node_modules/proxylease/package.json'), 'utf8'));
        assert.equal(manifest.dependencies, undefined);
        const script = 'import { Client, judge } from "proxylease"; import { LeasedSessions } from "proxylease/crawlee"; console.log(typeof Client, typeof judge, typeof LeasedSessions)';
        const out = await run(process.execPath, ['--input-type=module', '-e', script], { cwd: dir });
        assert.equal(out.stdout, 'function function function\n');
    } finally {
        fs.rmSync(dir, { recursive: true });
    }
});
