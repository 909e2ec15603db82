// A real Crawlee against failing proxies and sites.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Configuration, HttpCrawler, ProxyConfiguration, createHttpRouter } from '@crawlee/http';
import { CHROMIUM_ARGS } from 'proxylease';
import { LeasedSessions } from 'proxylease/crawlee';
import { API, FakeClock, proxy, raw, refusingPort, target, until } from './harness.js';

const urls = (n, host = 'site.example') => Array.from({ length: n }, (_, i) => `https://${host}/page${i}`);

// site starts a target and n proxies to it. answer(request, response, host) is the site's.
async function site(t, n, answer = (_, response) => response.end('page')) {
    const { port } = await target(t, (request, response) => {
        response.setHeader('Content-Type', 'text/html');
        answer(request, response, request.headers.host);
    });
    return Promise.all(Array.from({ length: n }, () => proxy(t, { to: port })));
}

// crawl runs a crawl and returns what came of it.
async function crawl(t, api, list, { client, crawler: own = {}, onPage = () => {}, ...leasing } = {}) {
    client ??= await api.client(t);
    const sessions = new LeasedSessions(client, { patienceSeconds: 10, ...leasing });
    const pages = [];
    const failed = [];
    const crawler = new HttpCrawler(sessions.options({
        proxyConfiguration: new ProxyConfiguration({ newUrlFunction: sessions.newUrlFunction }),
        maxConcurrency: 3, navigationTimeoutSecs: 20, ...own,
        requestHandler: async (context) => {
            pages.push(context.request.url);
            await onPage(context, pages, sessions);
        },
        failedRequestHandler: ({ request }) => failed.push(request.url),
    }), new Configuration({ persistStorage: false, logLevel: 'OFF', availableMemoryRatio: 1 }));
    try {
        await crawler.run(list);
    } finally {
        await sessions.close();
    }
    assert.equal(api.leases.size, 0, 'leases that are left');
    return { pages, failed };
}

test('200 pages of a site that always answers 200, by three proxies: no report', async (t) => {
    const api = await API.start(t, await site(t, 3));
    const { pages, failed } = await crawl(t, api, urls(200), { proxies: 3 });
    assert.equal(new Set(pages).size, 200);
    assert.deepEqual(failed, []);
    assert.deepEqual(api.reports, []);
});

test('a dead proxy is reported as connect_error, and no page is lost', async (t) => {
    const [healthy] = await site(t, 1);
    const api = await API.start(t, [{ scheme: 'http', host: '127.0.0.1', port: await refusingPort() }, healthy]);
    const { pages, failed } = await crawl(t, api, urls(3), { crawler: { maxConcurrency: 1 } });
    assert.equal(pages.length, 3);
    assert.deepEqual(failed, []);
    assert.deepEqual(api.reports, [{ proxy: 'p0', result: 'connect_error' }]);
});

test('a refusal rests the proxy for the site of the response, not for the first site of the lease', async (t) => {
    let refused = false;
    const api = await API.start(t, await site(t, 2, (_, response, host) => {
        const no = host === 'other.example' && !refused;
        refused ||= no;
        response.writeHead(no ? 403 : 200).end('page');
    }));
    const { pages } = await crawl(t, api, ['https://site.example/', 'https://other.example/'], { crawler: { maxConcurrency: 1 } });
    assert.equal(pages.length, 2);
    assert.deepEqual(api.reports, [{ proxy: 'p0', result: 'banned', target: 'other.example' }]);
});

test('URLs that always answer 403 cost no proxy, however many', async (t) => {
    const api = await API.start(t, await site(t, 6, (request, response) => {
        response.writeHead(/[05]$/.test(request.url) ? 403 : 200).end('page');
    }));
    for (const proxies of [1, 3]) {
        const { pages, failed } = await crawl(t, api, urls(40, `site${proxies}.example`), { proxies });
        assert.equal(new Set(pages).size, 32);
        assert.equal(failed.length, 8);
        assert.deepEqual(api.reports, []);
    }
});

test('a proxy that the site refuses for all URLs is reported once, and no page is lost', async (t) => {
    const { port: to } = await target(t, (request, response) => {
        response.writeHead(banned.seen.from.has(request.socket.remotePort) ? 403 : 200, { 'Content-Type': 'text/html' }).end('page');
    });
    const banned = await proxy(t, { to });
    const api = await API.start(t, [banned, await proxy(t, { to }), await proxy(t, { to })]);
    const { pages, failed } = await crawl(t, api, urls(20), { proxies: 2 });
    assert.equal(new Set(pages).size, 20);
    assert.deepEqual(failed, []);
    assert.deepEqual(api.reports, [{ proxy: 'p0', result: 'banned', target: 'site.example' }]);
});

test('the refusal of the only proxy is reported', async (t) => {
    const api = await API.start(t, await site(t, 1, (_, response) => response.writeHead(403).end('page')));
    const { failed } = await crawl(t, api, urls(1), { patienceSeconds: 0 });
    assert.equal(failed.length, 1);
    assert.deepEqual(api.reports, [{ proxy: 'p0', result: 'banned', target: 'site.example' }]);
});

test('a router is the requestHandler, and without one the options are refused', async (t) => {
    const api = await API.start(t, await site(t, 3));
    const client = await api.client(t);
    assert.throws(() => new LeasedSessions(client).options({}), /want requestHandler, which may be a router/);
    const router = createHttpRouter();
    const seen = [];
    router.addDefaultHandler(({ request }) => seen.push(request.url));
    const { pages, failed } = await crawl(t, api, urls(30), { client, proxies: 2, onPage: router, crawler: { sessionPoolOptions: { sessionOptions: { maxUsageCount: 5 } } } });
    assert.deepEqual([pages.length, seen.length, failed.length], [30, 30, 0]);
});

test('what counts as a ban is set for each site, by status and by text', async (t) => {
    const asked = new Map();
    const answer = (request, response, host) => {
        const first = !asked.has(host);
        asked.set(host, true);
        if (host === 'site.example') return response.writeHead(first ? 503 : 200).end('page');
        if (host === 'other.example') return response.end(first ? 'Are you a robot?' : 'page');
        return response.writeHead(403).end('no ban here');
    };
    const api = await API.start(t, await site(t, 4, answer));
    const client = await api.client(t, {
        bans: { 'site.example': { statuses: [503] }, 'other.example': { texts: [/are you a robot/i] }, 'a.site.example': { statuses: [] } },
    });
    const { pages } = await crawl(t, api, ['https://site.example/', 'https://other.example/'], { client, crawler: { maxConcurrency: 1 } });
    assert.equal(pages.length, 2);
    assert.deepEqual(api.reports.map(({ result, target: at }) => [result, at]), [['banned', 'site.example'], ['banned', 'other.example']]);
    const more = await crawl(t, api, ['https://a.site.example/'], { client, crawler: { maxConcurrency: 1 } });
    assert.equal(more.failed.length + more.pages.length, 1);
    assert.equal(api.reports.length, 2);
});

test('a handler can report what it finds, such as a captcha', async (t) => {
    const api = await API.start(t, await site(t, 1));
    const { pages } = await crawl(t, api, urls(1), {
        onPage: ({ request }, _, sessions) => sessions.leaseOf(request).report('captcha', { target: 'site.example' }),
    });
    assert.equal(pages.length, 1);
    assert.deepEqual(api.reports, [{ proxy: 'p0', result: 'captcha', target: 'site.example' }]);
});

test('429 with Retry-After: the report has the time', async (t) => {
    let first = true;
    const api = await API.start(t, await site(t, 2, (_, response) => {
        response.writeHead(first ? 429 : 200, first ? { 'Retry-After': '7' } : {}).end('page');
        first = false;
    }));
    const { pages } = await crawl(t, api, urls(2), { crawler: { maxConcurrency: 1 } });
    assert.equal(pages.length, 2);
    assert.deepEqual(api.reports, [{ proxy: 'p0', result: 'rate_limited', target: 'site.example', retryAfterSeconds: 7 }]);
});

test('a proxy that accepts connections and never answers is left after one time-out', async (t) => {
    const [healthy] = await site(t, 1);
    const frozen = await raw(t);
    const api = await API.start(t, [frozen, healthy]);
    const short = ({ crawler, proxyInfo }) => { // only the frozen proxy may time out
        crawler.navigationTimeoutMillis = proxyInfo.port === String(frozen.port) ? 200 : 30_000;
    };
    const { pages, failed } = await crawl(t, api, urls(6), { connectTimeoutMs: 100, crawler: { maxConcurrency: 1, preNavigationHooks: [short] } });
    assert.equal(pages.length, 6);
    assert.deepEqual(failed, []);
    assert.deepEqual(api.reports, [{ proxy: 'p0', result: 'proxy_timeout' }]);
});

test('a proxy that a renewal shows as not usable is left, without a report', async (t) => {
    const api = await API.start(t, await site(t, 2));
    const clock = new FakeClock();
    const client = await api.client(t, { clock });
    const proxies = new Map();
    const { pages } = await crawl(t, api, urls(4), {
        client, crawler: { maxConcurrency: 1 },
        onPage: async ({ request, proxyInfo, session }, done) => {
            proxies.set(request.url, proxyInfo.port);
            if (done.length !== 2) return;
            api.statusOf.p0 = { verdict: 'Unhealthy', usable: false };
            clock.advance(101_000);
            await until(() => session.isUsable() === false);
        },
    });
    assert.equal(pages.length, 4);
    assert.equal(new Set(proxies.values()).size, 2);
    assert.deepEqual(api.reports, []);
});

test('a target that the proxy cannot reach rests for that target alone', async (t) => {
    const refuses = (request, socket, tunnel) => (
        request.url.startsWith('dead.example') ? socket.end('HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n') : tunnel());
    const { port: to } = await target(t, (_, response) => response.setHeader('Content-Type', 'text/html').end('page'));
    const api = await API.start(t, await Promise.all([0, 1, 2, 3].map(() => proxy(t, { to, connect: refuses }))));
    const { pages, failed } = await crawl(t, api, ['https://dead.example/', ...urls(3)], { patienceSeconds: 1, crawler: { maxConcurrency: 1 } });
    assert.equal(pages.length, 3);
    assert.deepEqual(failed, ['https://dead.example/']);
    assert.ok(api.reports.every((r) => r.result === 'target_unreachable' && r.target === 'dead.example'), JSON.stringify(api.reports));
});

test('a browser\'s crawler gets a browser for each proxy, without WebRTC past it', async (t) => {
    const client = await (await API.start(t, [])).client(t);
    const options = (launchContext) => new LeasedSessions(client).options({ requestHandler: () => {}, launchContext }).launchContext;
    assert.deepEqual(options({}), { browserPerProxy: true, launchOptions: { args: CHROMIUM_ARGS } });
    assert.deepEqual(options({ useIncognitoPages: true, launchOptions: { args: ['--x'] } }), { useIncognitoPages: true, launchOptions: { args: ['--x', ...CHROMIUM_ARGS] } });
    const sessions = new LeasedSessions(client);
    const request = {};
    sessions.options({ requestHandler: () => {} });
    await assert.rejects(sessions.beforeNavigation({ page: {}, request }), /want launchContext, {} at least/);
    assert.equal(request.noRetry, true);
});

test('leases are given back after an exception in the crawl', async (t) => {
    const api = await API.start(t, await site(t, 1));
    await assert.rejects(crawl(t, api, urls(3), {
        crawler: {
            maxRequestRetries: 1,
            errorHandler: () => {
                throw new Error('the crawl ends');
            },
        },
        onPage: () => {
            throw new Error('a page');
        },
    }), /the crawl ends/);
    assert.equal(api.leases.size, 0);
    assert.deepEqual(api.reports, []);
});
