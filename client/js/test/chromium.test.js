// Debian's Chromium through playwright-core: what reaches the target, and its errors.
import assert from 'node:assert/strict';
import dgram from 'node:dgram';
import os from 'node:os';
import { after, before, test } from 'node:test';
import { Configuration, PlaywrightCrawler, ProxyConfiguration } from '@crawlee/playwright';
import { chromium } from 'playwright-core';
import { CHROMIUM_ARGS } from 'proxylease';
import { LeasedSessions } from 'proxylease/crawlee';
import { API, FLAGS, cases, cleanup, findProgram, proxy, raw, refusingPort, target, until } from './harness.js';

const LOGIN = 'crawler:c2VjcmV0==';
const executablePath = findProgram('chromium-headless-shell', 'chromium', 'google-chrome');
const skip = executablePath ? false : 'no Chromium in PATH: apt-get install chromium-headless-shell';

let browser;
before(async () => {
    if (!skip) browser = await chromium.launch({ executablePath, args: [...FLAGS, ...CHROMIUM_ARGS] });
});
after(() => browser?.close());

// visit opens url through the lease's proxy, and returns the response or the error.
async function visit(lease, url, timeout = 30_000) {
    const context = await browser.newContext({ proxy: lease.playwright(), ignoreHTTPSErrors: url.startsWith('https://site') });
    try {
        const page = await context.newPage();
        return await page.goto(url, { timeout });
    } catch (error) {
        return error;
    } finally {
        await context.close();
    }
}

// direct starts a target that keeps the local ports of those who connect to it.
async function direct(t) {
    const from = [];
    const site = await target(t, (request, response) => response.end('page'), { plain: true });
    site.server.on('connection', (socket) => from.push(socket.remotePort));
    return { ...site, from };
}

test('a password with == : the target is never reached but through the proxy', { skip }, async (t) => {
    const site = await direct(t);
    const through = await proxy(t, { to: site.port, login: LOGIN });
    const api = await API.start(t, [through]);
    const client = await api.client(t);
    const lease = await client.acquire();
    for (const url of [`http://127.0.0.1:${site.port}/`, `http://localhost:${site.port}/`, 'http://site.example/']) {
        assert.equal((await visit(lease, url)).status?.(), 200, url);
    }
    assert.ok(site.from.length >= 1);
    for (const port of site.from) assert.ok(through.seen.from.has(port), `${port} is not the proxy's`);
});

test('a browser that is launched with the flags for Puppeteer, and a wrong or dead proxy, reach nothing', { skip }, async (t) => {
    const site = await direct(t);
    const through = await proxy(t, { to: site.port, login: LOGIN });
    const dead = { scheme: 'http', host: '127.0.0.1', port: await refusingPort() };
    const api = await API.start(t, [{ ...through, login: 'crawler:wrong==' }, { ...dead, login: LOGIN }]);
    const client = await api.client(t);
    for (const expected of [/ERR_|407/, /ERR_PROXY_CONNECTION_FAILED/]) {
        const lease = await client.acquire();
        const own = await chromium.launch({ executablePath, args: [...FLAGS, ...lease.chromium().args] });
        try {
            const page = await own.newPage();
            const outcome = await page.goto(`http://127.0.0.1:${site.port}/`).catch((error) => error);
            assert.match(outcome instanceof Error ? outcome.message : String(outcome.status()), expected);
        } finally {
            await own.close();
        }
    }
    assert.deepEqual(site.from, []);
});

// stun starts a STUN server that counts what it gets, and returns a page that uses it as WebRTC does.
async function stun(t) {
    const socket = dgram.createSocket('udp4');
    const seen = { packets: 0 };
    socket.on('message', () => seen.packets++);
    await new Promise((resolve) => socket.bind(0, resolve));
    cleanup(t, () => new Promise((resolve) => socket.close(resolve)));
    const address = Object.values(os.networkInterfaces()).flat().find((each) => each.family === 'IPv4' && !each.internal)?.address ?? '127.0.0.1';
    const gather = async (url) => {
        const connection = new RTCPeerConnection({ iceServers: [{ urls: url }] });
        connection.createDataChannel('data');
        const complete = new Promise((resolve) => {
            connection.onicegatheringstatechange = () => connection.iceGatheringState === 'complete' && resolve();
        });
        await connection.setLocalDescription(await connection.createOffer());
        await complete;
    };
    return { seen, gather: (page) => page.evaluate(gather, `stun:${address}:${socket.address().port}`) };
}

test('WebRTC of a page sends no UDP past the proxy', { skip }, async (t) => {
    const { seen, gather } = await stun(t);
    const site = await direct(t);
    const through = await proxy(t, { to: site.port });
    const api = await API.start(t, [through]);
    const client = await api.client(t);
    const lease = await client.acquire();
    const programs = ['chromium-headless-shell', 'chromium', 'google-chrome'].map((name) => findProgram(name)).filter(Boolean);
    const visits = [...programs.map((program) => [program, CHROMIUM_ARGS]), [programs[0], []]];
    for (const [program, args] of visits) {
        const own = program === executablePath && args.length > 0 ? browser : await chromium.launch({ executablePath: program, args: [...FLAGS, ...args] });
        const context = await own.newContext({ proxy: lease.playwright() });
        try {
            const page = await context.newPage();
            await page.goto('http://site.example/');
            const gathered = gather(page);
            if (args.length > 0) {
                await gathered;
                assert.equal(seen.packets, 0, program);
            } else {
                gathered.catch(() => {}); // it ends with the page
                await until(() => seen.packets > 0, 'UDP without the flags');
            }
        } finally {
            await (own === browser ? context : own).close();
        }
    }
    for (const arg of CHROMIUM_ARGS) assert.ok(lease.chromium().args.includes(arg) && lease.selenium().includes(arg), arg);
});

test('Crawlee with a browser: a dead proxy and a ban are reported, and nothing goes direct', { skip }, async (t) => {
    const from = [];
    let refused = false;
    const { port, server } = await target(t, (request, response) => {
        const no = request.url === '/b' && !refused;
        refused ||= no;
        response.writeHead(no ? 403 : 200, { 'Content-Type': 'text/html' }).end('<body>the page</body>');
    });
    server.on('connection', (socket) => from.push(socket.remotePort));
    const dead = { scheme: 'http', host: '127.0.0.1', port: await refusingPort() };
    const proxies = [await proxy(t, { to: port, login: LOGIN }), await proxy(t, { to: port, login: LOGIN })];
    const api = await API.start(t, [dead, ...proxies]);
    const client = await api.client(t);
    const sessions = new LeasedSessions(client, { patienceSeconds: 10 });
    const pages = [];
    const crawler = new PlaywrightCrawler(sessions.options({
        proxyConfiguration: new ProxyConfiguration({ newUrlFunction: sessions.newUrlFunction }),
        launchContext: { launchOptions: { executablePath, args: [...FLAGS, '--ignore-certificate-errors'] } },
        maxConcurrency: 1, headless: true,
        requestHandler: async ({ page }) => pages.push(await page.textContent('body')),
    }), new Configuration({ persistStorage: false, logLevel: 'OFF', availableMemoryRatio: 1 }));
    try {
        await crawler.run(['a', 'b'].map((name) => `https://site.example/${name}`));
    } finally {
        await sessions.close();
    }
    assert.deepEqual(pages, ['the page', 'the page']);
    assert.deepEqual(api.reports, [{ proxy: 'p0', result: 'connect_error' }, { proxy: 'p1', result: 'banned', target: 'site.example' }]);
    assert.equal(api.leases.size, 0);
    for (const each of from) assert.ok(proxies.some((p) => p.seen.from.has(each)), 'a connection is not of a proxy');
});

// The situation of each case that a browser can be in.
const situations = {
    'dial refused': async () => ({ scheme: 'http', host: '127.0.0.1', port: await refusingPort() }),
    'dial unresolved': () => ({ scheme: 'http', host: 'proxy.invalid', port: 3128 }),
    'dial unreachable': () => ({ scheme: 'http', host: '255.255.255.255', port: 3128 }),
    'dial untrusted': (t) => proxy(t, { to: 1, secure: true }),
    'connect closed': (t) => raw(t, (socket) => socket.once('data', () => socket.end())),
    'connect malformed': (t) => raw(t, (socket) => socket.once('data', () => socket.end('SSH-2.0-OpenSSH_9.2\r\n\r\n'))),
    'connect timeout': (t) => raw(t),
    'tunnel untrusted': async (t) => proxy(t, { to: (await target(t, (_, response) => response.end())).port }),
    'tunnel closed': async (t) => proxy(t, { to: (await target(t, (request) => request.socket.destroy())).port }),
    'tunnel timeout': async (t) => proxy(t, { to: (await target(t, () => {})).port }),
};

for (const c of cases) {
    const status = Number.isInteger(c.is);
    const situation = status
        ? (t) => (c.at === 'connect'
            ? proxy(t, { connect: (_, socket) => socket.end(`HTTP/1.1 ${c.is} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n`) })
            : target(t, (_, response) => response.writeHead(c.is, c.retryAfterSeconds ? { 'Retry-After': String(c.retryAfterSeconds) } : {}).end())
                .then(({ port }) => proxy(t, { to: port })))
        : situations[`${c.at} ${c.is}`];
    // Those that are left out, such as plain requests, are in cases.test.js. A browser never shows a 304.
    if (!situation || (c.at === 'response' && (c.is === 407 || c.is === 304))) continue;
    test(`Chromium: ${c.name}`, { skip }, async (t) => {
        const api = await API.start(t, [await situation(t)]);
        const client = await api.client(t);
        const lease = await client.acquire({ connectTimeoutMs: c.is === 'timeout' && c.at === 'connect' ? 100 : 30_000 });
        const url = `https://${c.is === 'untrusted' && c.at === 'tunnel' ? 'other' : 'site'}.example/`;
        const outcome = await visit(lease, url, c.is === 'timeout' ? 1500 : 30_000);
        const verdict = outcome instanceof Error ? await lease.diagnose(outcome, { url }) : lease.judge(outcome, { url });
        assert.deepEqual(verdict, {
            report: c.report, target: c.target && 'site.example', changeProxy: c.changeProxy, retry: c.retry, retryAfterSeconds: c.retryAfterSeconds ?? null,
        }, String(outcome?.message));
    });
}
