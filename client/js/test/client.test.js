import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { inspect, promisify } from 'node:util';
import axios from 'axios';
import got from 'got';
import { Agent, fetch as undiciFetch } from 'undici';
import { CHROMIUM_ARGS, Client, LeaseError, Lost, NoProxy, Released } from 'proxylease';
import { API, FakeClock, ca, proxy, raw, target, until } from './harness.js';

const anyProxy = { scheme: 'http', host: '127.0.0.1', port: 3128 };
const renewals = (api) => api.calls.filter((call) => call.path.endsWith('/renew')).length;
const LOGIN = 'crawler:c2VjcmV0==';

test('a lease is a scope', async (t) => {
    const api = await API.start(t, [anyProxy]);
    const client = await api.client(t);
    await assert.rejects(client.use({ target: 'site.example' }, () => {
        assert.equal(api.leases.size, 1);
        throw new Error('the crawl fails');
    }), /the crawl fails/);
    assert.equal(api.leases.size, 0);
    assert.deepEqual(api.calls[0].body, { ttlSeconds: 300, schemes: ['http', 'https'], target: 'site.example', wait: 30 });
    assert.equal(api.calls[0].headers.authorization, 'Bearer CANARY-token');
});

test('a lease and a client give back what they hold at the end of a block', async (t) => {
    const api = await API.start(t, [anyProxy, anyProxy]);
    const client = await api.client(t);
    const lease = await client.acquire();
    await client.acquire();
    await lease[Symbol.asyncDispose]();
    assert.equal(api.leases.size, 1);
    await client[Symbol.asyncDispose]();
    assert.equal(api.leases.size, 0);
    await assert.rejects(client.acquire(), LeaseError);
});

test('closing ends an acquisition, and gives back what it was granted meanwhile', async (t) => {
    const api = await API.start(t, [anyProxy]);
    const client = await api.client(t, {
        fetch: async (url, options) => {
            const answer = await fetch(url, { ...options, signal: undefined });
            const first = options.method === 'POST' && api.calls.length === 1;
            if (!first) return answer;
            client.close(); // the answer is lost
            options.signal.throwIfAborted();
            return answer;
        },
    });
    await assert.rejects(client.acquire(), /client is closed/);
    await client.close();
    assert.deepEqual(api.calls.map((call) => call.method), ['POST', 'POST', 'DELETE']);
    assert.equal(api.calls[0].headers['idempotency-key'], api.calls[1].headers['idempotency-key']);
    assert.equal(api.leases.size, 0);
});

for (const signal of ['SIGINT', 'SIGTERM']) {
    test(`${signal} gives all leases back where the program wants it`, async (t) => {
        const api = await API.start(t, [anyProxy, anyProxy]);
        const script = `
            import { Client } from 'proxylease';
            const client = new Client({ url: process.env.DISCOVERY_URL });
            client.closeOnSignals();
            await client.acquire(); await client.acquire();
            console.log('leased');
            setInterval(() => {}, 1000);`;
        const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
            cwd: fileURLToPath(new URL('..', import.meta.url)), env: { ...process.env, DISCOVERY_URL: api.url }, stdio: ['ignore', 'pipe', 'inherit'],
        });
        await once(child.stdout, 'data');
        assert.equal(api.leases.size, 2);
        child.kill(signal);
        const [, ended] = await once(child, 'exit');
        assert.equal(ended, signal);
        assert.equal(api.leases.size, 0);
    });
}

test('renewals do not keep the process running', async (t) => {
    const api = await API.start(t, [anyProxy]);
    const script = `
        import { Client } from 'proxylease';
        await new Client({ url: process.env.DISCOVERY_URL }).acquire();`;
    await promisify(execFile)(process.execPath, ['--input-type=module', '-e', script], {
        cwd: fileURLToPath(new URL('..', import.meta.url)), env: { ...process.env, DISCOVERY_URL: api.url },
    });
    assert.equal(api.leases.size, 1);
});

test('patience is the whole time, and Retry-After the latest', async (t) => {
    const api = await API.start(t, []);
    const clock = new FakeClock();
    const client = await api.client(t, {
        clock,
        fetch: (url, options) => {
            clock.advance(1000 * (JSON.parse(options.body ?? '{}').wait ?? 0)); // as the API waits
            if (clock.now() >= 36_000) api.proxies = [{ name: 'p0', ...anyProxy }];
            return fetch(url, options);
        },
    });
    const refusal = { status: 409, body: { error: 'no_match', message: 'none' }, headers: { 'Retry-After': '3600' } };
    api.failing.push(refusal);
    const lease = await client.acquire({ patienceSeconds: 60 });
    assert.equal(lease.server, 'http://127.0.0.1:3128');
    await lease.release();
    const before = clock.now();
    api.failing.push(...Array.from({ length: 100 }, () => refusal));
    await assert.rejects(client.acquire({ patienceSeconds: 60 }), NoProxy);
    assert.ok(clock.now() - before >= 60_000, String(clock.now() - before));
    assert.ok(api.failing.length > 90, 'it asks rarely');
});

test('a selector that matches nothing fails at once, unless the program waits for that', async (t) => {
    const api = await API.start(t, [anyProxy]);
    const clock = new FakeClock();
    const client = await api.client(t, { clock });
    const refusal = { status: 409, body: { error: 'no_match', message: 'no proxy matches', considered: 0 } };
    api.failing.push(refusal);
    await assert.rejects(client.acquire({ selector: { geo: 'xx' } }), (error) => error.counts.considered === 0);
    assert.equal(clock.now(), 0);
    api.failing.push(refusal, refusal);
    await client.acquire({ selector: { geo: 'xx' }, waitForMatch: true });
    assert.equal(api.calls.at(-1).body.waitForMatch, true);
});

test('retries have the same key, and a refused token is no reason to retry', async (t) => {
    const api = await API.start(t, [anyProxy]);
    const client = await api.client(t, { clock: new FakeClock() });
    api.failing.push({ status: 503, body: { error: 'not_ready' } }, { status: 502 });
    await client.acquire();
    assert.equal(new Set(api.calls.map((call) => call.headers['idempotency-key'])).size, 1);
    assert.equal(api.calls.length, 3);
    api.failing.push({ status: 401, body: { error: 'unauthorized', message: 'wrong token' } });
    await assert.rejects(client.acquire(), /401 unauthorized: wrong token/);
});

test('one timer renews all leases, and a lost lease is passed on', async (t) => {
    const api = await API.start(t, [anyProxy, anyProxy, anyProxy]);
    const clock = new FakeClock();
    const client = await api.client(t, { clock });
    const lost = [];
    const leases = await Promise.all([1, 2, 3].map(() => client.acquire({ onLost: (lease, error) => lost.push([lease, error]) })));
    assert.equal(clock.timers, 1);
    clock.advance(100_001);
    await until(() => api.calls.filter((call) => call.path.endsWith('/renew')).length === 3);
    await until(() => clock.next >= 30_000);
    assert.equal(clock.timers, 1);
    api.leases.delete(leases[1].id);
    clock.advance(100_001);
    await until(() => lost.length === 1);
    assert.equal(lost[0][0], leases[1]);
    assert.ok(leases[1].error instanceof Lost);
    assert.ok(leases[1].signal.aborted);
    assert.equal(leases[0].error, null);
});

test('a lease that cannot be renewed is lost when it expires, not before', async (t) => {
    const api = await API.start(t, [anyProxy]);
    const clock = new FakeClock();
    let busy = 0;
    const client = await api.client(t, {
        clock,
        fetch: async (...args) => {
            busy++;
            try {
                const answer = await fetch(...args);
                return new Response(await answer.text() || null, answer);
            } finally {
                busy--;
            }
        },
    });
    const lease = await client.acquire();
    api.failing = Array.from({ length: 1000 }, () => ({ status: 503, body: { error: 'not_ready' }, headers: { 'Retry-After': '3600' } }));
    while (!lease.error) {
        clock.advance(1000);
        if (busy > 0) await until(() => busy === 0);
        await new Promise((resolve) => setImmediate(resolve));
    }
    assert.ok(lease.error instanceof Lost);
    assert.ok(clock.now() >= 298_000, String(clock.now()));
    assert.ok(renewals(api) >= 4, 'retries before it expires');
    api.failing = [];
});

test('a renewal passes on that the proxy is not usable, once', async (t) => {
    const api = await API.start(t, [anyProxy]);
    const clock = new FakeClock();
    const client = await api.client(t, { clock });
    let unusable = 0;
    const lease = await client.acquire({ onUnusable: () => unusable++ });
    api.statusOf.p0 = { verdict: 'Unhealthy', usable: false, reason: 'ProxyTimeout', message: 'no answer to CONNECT' };
    for (const renewals of [1, 2]) {
        clock.advance(101_000);
        await until(() => api.calls.filter((call) => call.path.endsWith('/renew')).length === renewals);
        await until(() => clock.next >= 30_000);
    }
    assert.equal(unusable, 1);
    assert.equal(lease.usable, false);
    assert.equal(lease.reason, 'ProxyTimeout: no answer to CONNECT');
});

test('a proxy with a scheme that the library cannot speak is not used', async (t) => {
    const api = await API.start(t, [{ ...anyProxy, scheme: 'socks5' }]);
    const client = await api.client(t, { clock: new FakeClock() });
    await assert.rejects(client.acquire({ patienceSeconds: 0 }), NoProxy);
    const lease = await client.acquire({ schemes: ['socks5'] });
    for (const use of [() => lease.agents, () => lease.undici(), () => lease.axios(), () => lease.got()]) {
        assert.throws(use, /speaks socks5, this library only http, https: acquire with schemes/);
    }
    assert.equal(lease.playwright().server, 'socks5://127.0.0.1:3128');
    await lease.release();
    api.proxies[0].login = LOGIN;
    const second = await client.acquire({ schemes: ['socks5'] });
    assert.throws(() => second.playwright(), /cannot log in to a SOCKS proxy/);
    await second.release();
    // An API that does not know the field schemes.
    const old = await api.client(t, { fetch: (url, o) => fetch(url, { ...o, body: o.body && JSON.stringify({ ...JSON.parse(o.body), schemes: undefined }) }) });
    await assert.rejects(old.acquire(), /granted a proxy that speaks socks5, wanted http, https/);
    assert.equal(api.leases.size, 0);
});

test('a grant that cannot be used is given back', async (t) => {
    const api = await API.start(t, [anyProxy]);
    const client = await api.client(t);
    for (const proxyURL of ['http://crawler:%FF@127.0.0.1:3128', 'CANARY', undefined]) {
        api.failing.push({ status: 201, body: { leaseID: 'L99', ttlSeconds: 300, proxy: {}, proxyURL } });
        await assert.rejects(client.acquire(), (error) => /lease L99 has no proxyURL that can be used/.test(error.message) && !/CANARY/.test(error.message));
        assert.equal(api.calls.at(-1).path, '/v1/leases/L99');
        assert.equal(api.calls.at(-1).method, 'DELETE');
    }
});

test('passwords stand by themselves, and in no log', async (t) => {
    const api = await API.start(t, [{ ...anyProxy, login: LOGIN }]);
    const client = await api.client(t);
    const lease = await client.acquire();
    assert.equal(lease.proxyURL, 'http://crawler:c2VjcmV0%3D%3D@127.0.0.1:3128');
    assert.deepEqual(lease.playwright(), { server: 'http://127.0.0.1:3128', username: 'crawler', password: 'c2VjcmV0==' });
    assert.deepEqual(lease.chromium(), {
        args: ['--proxy-server=http://127.0.0.1:3128', '--proxy-bypass-list=<-loopback>', ...CHROMIUM_ARGS], credentials: { username: 'crawler', password: 'c2VjcmV0==' },
    });
    assert.throws(() => lease.selenium(), /Selenium cannot send the username/);
    for (const shown of [inspect(lease, { depth: 9 }), JSON.stringify(lease), inspect(client, { depth: 9 })]) {
        assert.doesNotMatch(shown, /c2Vj|CANARY/);
    }
    assert.throws(() => new Client({ url: 'http://user:CANARY@discovery:8090' }), (error) => !/CANARY/.test(error.message));
});

test('what a lease is used by ends with it', async (t) => {
    const { port } = await target(t, (request, response) => {
        if (request.url !== '/hang') response.end('page');
    });
    const through = await proxy(t, { to: port, login: LOGIN });
    const api = await API.start(t, [{ ...through, maxLeases: 9 }]);
    const client = await api.client(t);
    const clients = {
        axios: (lease) => {
            const options = lease.axios();
            options.httpsAgent.options.ca = ca;
            return async (url) => axios.get(url, options);
        },
        got: (lease) => async (url) => got(url, { ...lease.got(), https: { certificateAuthority: ca }, retry: { limit: 0 } }),
        undici: (lease) => {
            const dispatcher = new Agent(lease.undici({ connect: { ca } }));
            return (url) => undiciFetch(url, { dispatcher });
        },
    };
    for (const [name, make] of Object.entries(clients)) {
        const lease = await client.acquire();
        const get = make(lease);
        assert.equal((await get('https://site.example/')).status ?? 200, 200, name);
        const connects = through.seen.connects.length;
        const hanging = get('https://site.example/hang').catch((error) => error);
        await until(() => through.seen.connects.length > connects || through.server.connections.size > 0);
        await lease.release();
        assert.deepEqual(lease.judge(await hanging, { url: 'https://site.example/hang' }).report, null, name);
        await until(() => through.server.connections.size === 0, `${name}'s connections`);
        await assert.rejects(get('https://site.example/'), name);
        assert.ok(lease.error instanceof Released);
    }
});

test('a plain request goes to the proxy in absolute form, with its login', async (t) => {
    const { port } = await target(t, (_, response) => response.end('page'), { plain: true });
    const through = await proxy(t, { to: port, login: LOGIN });
    const api = await API.start(t, [through]);
    const client = await api.client(t);
    const lease = await client.acquire();
    assert.equal((await axios.get('http://site.example/a?b=c', lease.axios())).data, 'page');
    assert.equal(await got('http://site.example:8080/d', lease.got()).text(), 'page');
    assert.deepEqual(through.seen.plain, ['http://site.example/a?b=c', 'http://site.example:8080/d']);
});

test('record reports a verdict with its target and time', async (t) => {
    const api = await API.start(t, [anyProxy]);
    const client = await api.client(t);
    const lease = await client.acquire({ target: 'first.example' });
    const response = new Response('', { status: 429, headers: { 'Retry-After': '7' } });
    const verdict = await lease.record(response, { url: 'https://second.example/' });
    assert.equal(verdict.changeProxy, true);
    await lease.record(new Response('', { status: 200 }), { url: 'https://second.example/' });
    assert.deepEqual(api.reports, [{ proxy: 'p0', result: 'rate_limited', target: 'second.example', retryAfterSeconds: 7 }]);
});

test('a date as Retry-After counts from the response\'s own date', async (t) => {
    const api = await API.start(t, [anyProxy]);
    const client = await api.client(t);
    const lease = await client.acquire();
    const headers = { Date: 'Tue, 01 Dec 2026 10:00:00 GMT', 'Retry-After': 'Tue, 01 Dec 2026 10:00:09 GMT' };
    const judged = (more) => lease.judge(new Response('', { status: 429, headers: { ...headers, ...more } })).retryAfterSeconds;
    assert.equal(judged({}), 9);
    assert.equal(judged({ 'Retry-After': '99999999' }), 86_400);
    for (const bad of ['soon', '-1', '0', '']) assert.equal(judged({ 'Retry-After': bad }), null, bad);
});

test('a frozen proxy is found out by a browser\'s time-out', async (t) => {
    const frozen = await raw(t);
    const api = await API.start(t, [frozen]);
    const client = await api.client(t);
    const lease = await client.acquire({ connectTimeoutMs: 50 });
    const timeout = Object.assign(new Error('page.goto: Timeout 30000ms exceeded.'), { name: 'TimeoutError' });
    assert.equal((await lease.diagnose(timeout, { url: 'https://site.example/' })).report, 'proxy_timeout');
});
