// Leases over time: renewals, what is given back, and what their failures mean.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import axios from 'axios';
import got from 'got';
import { LeaseError, NoProxy, judge } from 'proxylease';
import { API, FakeClock, ca, cases, proxy, raw, target, until } from './harness.js';

const anyProxy = { scheme: 'http', host: '127.0.0.1', port: 3128 };
const renewals = (api) => api.calls.filter((call) => call.path.endsWith('/renew')).length;

test('a long lease is renewed every 30 seconds, a short one every third of its time', async (t) => {
    for (const [ttlSeconds, due] of [[3600, 30_000], [60, 20_000]]) {
        const api = await API.start(t, [anyProxy], { ttlSeconds });
        const clock = new FakeClock();
        const client = await api.client(t, { clock });
        await client.acquire({ ttlSeconds });
        clock.advance(due - 1);
        assert.equal(clock.timers, 1);
        assert.equal(clock.next, 1);
        clock.advance(1);
        await until(() => renewals(api) === 1);
    }
});

test('a renewal that hangs is repeated, and the lease is kept', async (t) => {
    const api = await API.start(t, [anyProxy]);
    const clock = new FakeClock();
    let hung = 0;
    const client = await api.client(t, {
        clock,
        fetch: (url, options) => {
            if (!url.endsWith('/renew') || hung > 0) return fetch(url, options);
            hung++;
            return new Promise((_, reject) => options.signal.addEventListener('abort', () => reject(options.signal.reason)));
        },
    });
    const lease = await client.acquire();
    clock.advance(30_000);
    assert.equal(hung, 1);
    clock.advance(10_000);
    await until(() => clock.next < 10_000); // the retry
    clock.advance(1_000);
    await until(() => renewals(api) === 1);
    assert.equal(lease.error, null);
});

test('an acquire that ends without an answer gives back what was granted', async (t) => {
    const api = await API.start(t, [anyProxy]);
    const lost = { // the lease is granted, the answer is lost
        error: () => Promise.reject(new Error('socket hang up')),
        502: () => new Response('', { status: 502 }),
        'no ttlSeconds': async (answer) => Response.json({ ...await answer.json(), ttlSeconds: undefined }, { status: 201 }),
    };
    for (const [name, lose] of Object.entries(lost)) {
        let first = true;
        const client = await api.client(t, {
            clock: new FakeClock(),
            fetch: async (url, options) => {
                const answer = await fetch(url, options);
                if (!first) return answer;
                first = false;
                return lose(answer);
            },
        });
        await assert.rejects(client.acquire({ patienceSeconds: 0 }), LeaseError, name);
        assert.deepEqual(api.calls.splice(0).map((call) => call.method), ['POST', 'POST', 'DELETE'], name);
        assert.equal(api.leases.size, 0, name);
    }
    api.proxies = [];
    const client = await api.client(t);
    await assert.rejects(client.acquire({ patienceSeconds: 0 }), NoProxy);
    assert.equal(api.calls.length, 1, 'a refusal leases nothing');
});

test('callbacks that throw are warnings', async (t) => {
    const api = await API.start(t, [anyProxy]);
    const clock = new FakeClock();
    const client = await api.client(t, { clock });
    const throws = (text) => async () => {
        throw new Error(text);
    };
    const lease = await client.acquire({ onUnusable: throws('of onUnusable'), onLost: () => throws('of onLost')() });
    api.statusOf.p0 = { usable: false };
    for (const text of ['of onUnusable', 'of onLost']) {
        const warned = once(process, 'warning');
        clock.advance(30_000);
        assert.equal((await warned)[0].message, text);
        await until(() => lease.error || clock.next >= 30_000);
        api.leases.clear();
    }
    assert.ok(lease.error);
});

test('407: of a proxy to a plain request alone', () => {
    const [plain, tunnel] = cases.filter((c) => c.at === 'response' && c.is === 407);
    for (const [url, c] of [['http://site.example/', plain], ['https://site.example/', tunnel], [undefined, tunnel]]) {
        assert.deepEqual(judge(new Response('', { status: 407 }), { url }), {
            report: c.report, target: null, changeProxy: c.changeProxy, retry: c.retry, retryAfterSeconds: null,
        }, String(url));
    }
});

test('a failure after a redirect is of the site that it led to', async (t) => {
    const { port: to } = await target(t, (request, response) => {
        if (request.url === '/hang') return undefined;
        const at = request.url === '/late' ? 'https://second.example/hang' : 'https://dead.example/';
        return response.writeHead(302, { Location: at }).end();
    });
    const connect = (request, socket, tunnel) => (
        request.url.startsWith('dead.example') ? socket.end('HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n') : tunnel());
    const api = await API.start(t, [{ ...await proxy(t, { to, connect }) }]);
    const client = await api.client(t);
    const lease = await client.acquire();
    const options = lease.axios();
    Object.assign(options.httpsAgent.options, { ca, checkServerIdentity: () => undefined });
    const https = { certificateAuthority: ca, checkServerIdentity: () => undefined };
    const libraries = {
        axios: (url, timeout) => axios.get(url, { ...options, timeout }),
        got: (url, timeout) => got(url, { ...lease.got(), https, retry: { limit: 0 }, timeout: { request: timeout } }),
    };
    for (const [name, get] of Object.entries(libraries)) {
        const verdict = async (path, timeout) => {
            const url = `https://site.example${path}`;
            const { report, target: site } = lease.judge(await get(url, timeout).catch((error) => error), { url });
            return [report, site];
        };
        assert.deepEqual(await verdict('/', 30_000), ['target_unreachable', 'dead.example'], name);
        assert.deepEqual(await verdict('/late', 700), ['target_timeout', 'second.example'], name);
    }
});

test('a time-out in an open tunnel, while another one opens, is the target\'s', async (t) => {
    const { port: to } = await target(t, () => {});
    let tunnels = 0;
    const through = await proxy(t, { to, connect: (_request, _socket, tunnel) => tunnels++ === 0 && tunnel() });
    const api = await API.start(t, [through]);
    const client = await api.client(t);
    const lease = await client.acquire({ connectTimeoutMs: 30_000 });
    const options = lease.axios();
    options.httpsAgent.options.ca = ca;
    const url = 'https://site.example/';
    const abort = new AbortController();
    const first = axios.get(url, { ...options, signal: abort.signal }).catch(() => {});
    await until(() => tunnels === 1 && through.seen.from.size === 1);
    const second = axios.get(url, { ...options, signal: abort.signal }).catch(() => {});
    await until(() => tunnels === 2);
    const timeout = Object.assign(new Error('late'), { code: 'ETIMEDOUT' });
    assert.equal(lease.judge(timeout, { url }).report, 'target_timeout');
    abort.abort();
    await Promise.all([first, second]);
});

test('a proxy that denies CONNECT to port 80 is not held against an http: target', async (t) => {
    const denies = (status) => (socket) => socket.once('data', () => socket.end(`HTTP/1.1 ${status} No\r\nContent-Length: 0\r\n\r\n`));
    const timeout = Object.assign(new Error('page.goto: Timeout 30000ms exceeded.'), { name: 'TimeoutError' });
    for (const [status, url, report] of [
        [403, 'http://site.example/', 'target_timeout'], [403, 'https://site.example/', 'target_unreachable'],
        [503, 'http://site.example/', 'target_unreachable'], [407, 'http://site.example/', 'connect_error'],
    ]) {
        const api = await API.start(t, [await raw(t, denies(status))]);
        const client = await api.client(t);
        const lease = await client.acquire();
        assert.equal((await lease.diagnose(timeout, { url })).report, report, `${status} ${url}`);
    }
});
