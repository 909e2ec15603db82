// The recipes of docs/clients.md, as they stand, each as a program of its own.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { API, FLAGS, findProgram, proxy, target } from './harness.js';

const root = fileURLToPath(new URL('..', import.meta.url));
const page = fs.readFileSync(path.join(root, '../../docs/clients.md'), 'utf8');
const recipes = [...page.matchAll(/run by TestJavaScriptRecipes in cmd\/discovery -->\n```js\n(\/\/ (\w+)\n[^]*?)```/g)].map(([, text, name]) => ({ name, text }));
const chromium = findProgram('chromium', 'chromium-headless-shell', 'google-chrome');
const chromedriver = findProgram('chromedriver');

// A browser in a container needs flags that people do not.
const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'proxylease-'));
const wrapper = path.join(dir, 'chromium');
fs.writeFileSync(wrapper, `#!/bin/sh\nexec ${chromium} ${FLAGS.join(' ')} --ignore-certificate-errors "$@"\n`, { mode: 0o755 });
after(() => fs.rmSync(dir, { recursive: true }));

const needs = { playwright: chromium, puppeteer: chromium, selenium: chromium && chromedriver };
for (const { name, text } of recipes) {
    const skip = name in needs && !needs[name] ? `no ${name === 'selenium' ? 'chromedriver' : 'Chromium'} in PATH` : false;
    test(name, { skip }, async (t) => {
        const from = [];
        const { port, server } = await target(t, (_, response) => response.setHeader('Content-Type', 'text/html').end('<body>the page</body>'));
        server.on('connection', (socket) => from.push(socket.remotePort));
        const through = await proxy(t, { to: port, login: name === 'selenium' ? undefined : 'crawler:c2VjcmV0==' });
        const api = await API.start(t, [through]);
        const file = path.join(root, `recipe-${process.pid}-${name}.mjs`);
        t.after(() => fs.rmSync(file));
        fs.writeFileSync(file, text.replace('/usr/bin/chromium\'', `${wrapper}'`).replace('/usr/bin/chromedriver', chromedriver ?? ''));
        const env = {
            ...process.env, DISCOVERY_URL: api.url, DISCOVERY_TOKEN: 'CANARY-token', CRAWLEE_PERSIST_STORAGE: 'false', CRAWLEE_STORAGE_DIR: dir,
            NODE_EXTRA_CA_CERTS: path.join(root, 'test/testdata/ca.pem'),
        };
        const { stdout, stderr } = await promisify(execFile)(process.execPath, [file], { env, cwd: dir, timeout: 120_000 });
        assert.match(stdout, /the page/);
        assert.doesNotMatch(stdout + stderr, /CANARY|c2VjcmV0/);
        assert.equal(api.leases.size, 0);
        assert.deepEqual(api.reports, []);
        assert.ok(from.length > 0);
        for (const each of from) assert.ok(through.seen.from.has(each), 'all connections are the proxy\'s');
    });
}

test('each recipe is found', () => {
    assert.deepEqual(recipes.map(({ name }) => name), ['axios', 'got', 'undici', 'playwright', 'puppeteer', 'selenium', 'crawlee']);
});
