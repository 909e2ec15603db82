// Several attempts at one URL: who is held to have refused it.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import axios from 'axios';
import { API, FakeClock, ca, proxy, target } from './harness.js';

const url = 'https://site.example/page';
const anyProxy = { scheme: 'http', host: '127.0.0.1', port: 3128 };
const answer = (status, headers = {}) => ({ status, headers, data: 'page' });

// run makes attempts that end as scripted, and returns the proxies used and the result.
async function run(t, { proxies = 4, ends, ...options }) {
    const api = await API.start(t, Array.from({ length: proxies }, () => anyProxy));
    const client = await api.client(t, { clock: new FakeClock() });
    const used = [];
    const result = await client.attempts({ target: url, patienceSeconds: 0, ...options }, (lease) => {
        const end = ends[used.push(lease.proxy.name) - 1];
        if (end instanceof Error) throw end;
        return end;
    }).catch((error) => error);
    assert.equal(api.leases.size, 0, 'leases that are left');
    return { api, used, result };
}

test('a URL that is refused through three proxies is not held against them', async (t) => {
    const { api, used, result } = await run(t, { ends: [answer(403), answer(403), answer(403)] });
    assert.deepEqual(used, ['p0', 'p1', 'p2']);
    assert.equal(result.status, 403);
    assert.deepEqual(api.reports, []);
});

test('proxies that were refused are reported when another one gets the page', async (t) => {
    const { api, used, result } = await run(t, { ends: [answer(403, { 'retry-after': '9' }), answer(451), answer(200)] });
    assert.equal(result.data, 'page');
    assert.deepEqual(used, ['p0', 'p1', 'p2']);
    assert.deepEqual(api.reports, [
        { proxy: 'p0', result: 'banned', target: 'site.example', retryAfterSeconds: 9 }, { proxy: 'p1', result: 'banned', target: 'site.example' },
    ]);
});

test('the ban of the only proxy is reported', async (t) => {
    const { api, result } = await run(t, { proxies: 1, ends: [answer(403)], waitForMatch: true });
    assert.equal(result.status, 403);
    assert.deepEqual(api.reports, [{ proxy: 'p0', result: 'banned', target: 'site.example' }]);
});

test('another proxy is used after a failure without a cooldown, too', async (t) => {
    const closed = Object.assign(new Error('socket hang up'), { code: 'ECONNRESET' });
    const late = Object.assign(new Error('late'), { code: 'ETIMEDOUT' });
    const { api, used, result } = await run(t, { ends: [closed, late, closed], exclude: ['crawl/p1'], session: 'cart-17' });
    assert.deepEqual(used, ['p0', 'p2', 'p3']);
    assert.equal(result, closed);
    assert.deepEqual(api.reports, [{ proxy: 'p2', result: 'target_timeout', target: 'site.example' }]);
});

test('what is no reason for a retry ends the attempts', async (t) => {
    for (const status of [200, 404, 503]) {
        const { api, used, result } = await run(t, { ends: [answer(status)] });
        assert.deepEqual([used.length, result.status, api.reports], [1, status, []]);
    }
    const { used } = await run(t, { ends: [answer(429), answer(429), answer(200)], attempts: 2 });
    assert.equal(used.length, 2);
});

test('a refusal followed by a failure of the site is no proof', async (t) => {
    const { api, used } = await run(t, { ends: [answer(403), answer(503)] });
    assert.equal(used.length, 2);
    assert.deepEqual(api.reports, []);
});

test('what is no response needs a judge of its own', async (t) => {
    assert.match((await run(t, { ends: ['page'] })).result.message, /f returned no response: pass the option judge/);
    const judge = (lease, page) => lease.judge(page.response, { url, bans: { '*': { texts: ['robot'] } }, text: page.text });
    const ends = [{ response: answer(200), text: 'a robot?' }, { response: answer(200), text: 'page' }];
    const { api, result } = await run(t, { ends, judge });
    assert.equal(result.text, 'page');
    assert.deepEqual(api.reports.map((report) => report.result), ['banned']);
});

test('discovery refuses all proxies from the start: the error is discovery\'s', async (t) => {
    assert.equal((await run(t, { proxies: 0, ends: [] })).result.name, 'NoProxy');
});

test('attempts with axios through real proxies', async (t) => {
    let requests = 0;
    const { port } = await target(t, (_, response) => response.writeHead(requests++ ? 200 : 403).end('page'));
    const api = await API.start(t, await Promise.all([1, 2].map(() => proxy(t, { to: port }))));
    const client = await api.client(t);
    const { data } = await client.attempts({ target: url }, (lease) => {
        const options = lease.axios();
        options.httpsAgent.options.ca = ca;
        return axios.get(url, options);
    });
    assert.equal(data, 'page');
    assert.deepEqual(api.reports, [{ proxy: 'p0', result: 'banned', target: 'site.example' }]);
});
