// Leased proxies for Crawlee: every session has its own proxy for as long as the session lasts.
//
//   const proxies = new LeasedProxies({ url: "http://discovery:8090", token: process.env.DISCOVERY_TOKEN });
//   const crawler = new HttpCrawler({
//       proxyConfiguration: new ProxyConfiguration({ newUrlFunction: proxies.newUrlFunction }),
//       preNavigationHooks: [proxies.beforeNavigation],
//       ...
//   });
//   await crawler.run(...);
//   await proxies.close();
//
// Needs only Node 18 or later.
import { randomUUID } from 'node:crypto';

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export class LeasedProxies {
    // selector: attributes that proxies must have. ttlSeconds: TTL of leases; if the crawler is killed, they expire after it.
    // patienceSeconds: timeout for getting a proxy. onLost(sessionId, error) is called when a lease ends before its session.
    constructor({ url, token, selector = {}, ttlSeconds = 300, patienceSeconds = 60, onLost = () => {} }) {
        if (!/^https?:\/\//.test(url ?? '')) throw new Error('url of discovery: want http://host:port or https://host');
        Object.assign(this, { url: url.replace(/\/$/, ''), token, selector, ttlSeconds, patienceSeconds, onLost });
        this.leases = new Map(); // promises of leases, by session
        this.followed = new WeakSet(); // session pools
    }

    // newUrlFunction is the option of ProxyConfiguration; it returns the proxy of the session.
    newUrlFunction = async (sessionId, options) => {
        const session = sessionId ?? 'all';
        if (!this.leases.has(session)) {
            const target = options?.request?.url ?? '';
            const lease = this.#acquire(session, target);
            this.leases.set(session, lease);
            lease.catch(() => this.leases.delete(session));
        }
        return (await this.leases.get(session)).proxyURL;
    };

    // beforeNavigation is a preNavigationHook. It closes tunnels after each response, since a kept tunnel would use the
    // proxy after the lease has ended. When Crawlee retires a session, as it does for sessions that a site blocks, the
    // proxy is reported as banned and its lease released.
    beforeNavigation = async ({ crawler }, options) => {
        options.headers = { ...options.headers, connection: 'close' };
        options.http2 = false; // HTTP/2 has no Connection header
        if (this.followed.has(crawler.sessionPool)) return;
        this.followed.add(crawler.sessionPool);
        crawler.sessionPool.on('sessionRetired', (session) => this.release(session.id, 'banned'));
    };

    // release reports result, if given, and releases the session's lease.
    async release(sessionId, result) {
        const promise = this.leases.get(sessionId);
        if (!promise) return;
        this.leases.delete(sessionId);
        const lease = await promise.catch(() => null);
        if (!lease) return;
        clearInterval(lease.timer);
        if (result) await this.#call('POST', `/v1/leases/${lease.leaseID}/report`, { result }).catch(() => {});
        await this.#call('DELETE', `/v1/leases/${lease.leaseID}`).catch(() => {}); // otherwise it expires
    }

    // close releases all leases.
    async close() {
        await Promise.all([...this.leases.keys()].map((session) => this.release(session)));
    }

    async #acquire(session, target) {
        const deadline = Date.now() + 1000 * this.patienceSeconds;
        const headers = { 'Idempotency-Key': randomUUID() };
        for (;;) {
            const wait = Math.max(0, Math.min(30, Math.floor((deadline - Date.now()) / 1000)));
            const body = { selector: this.selector, ttlSeconds: this.ttlSeconds, session, target, wait };
            try {
                const lease = await this.#call('POST', '/v1/leases', body, headers);
                lease.timer = setInterval(() => this.#renew(session, lease), 1000 * this.ttlSeconds / 3);
                lease.timer.unref();
                return lease;
            } catch (error) {
                const pause = error.retryAfter ? 1000 * error.retryAfter : 500;
                const passes = error.retryAfter || !error.status || error.status >= 500;
                if (!passes || Date.now() + pause > deadline) throw error;
                await sleep(pause);
            }
        }
    }

    async #renew(session, lease) {
        try {
            await this.#call('POST', `/v1/leases/${lease.leaseID}/renew`, {});
        } catch (error) {
            if (error.code !== 'unknown_lease' && error.code !== 'lease_gone') return; // the next renewal may succeed
            clearInterval(lease.timer);
            this.leases.delete(session); // the next request gets another one
            this.onLost(session, error);
        }
    }

    async #call(method, path, body, headers = {}) {
        if (this.token) headers = { ...headers, Authorization: `Bearer ${this.token}` };
        if (body) headers = { ...headers, 'Content-Type': 'application/json' };
        const answer = await fetch(this.url + path, {
            method, headers, body: body && JSON.stringify(body), signal: AbortSignal.timeout(40_000),
        }).catch((error) => {
            throw new Error(`discovery at ${new URL(this.url).host}: ${error.cause?.message || error.cause?.code || error.message}`, { cause: error });
        });
        const text = await answer.text();
        if (answer.ok) return text ? JSON.parse(text) : undefined;
        let problem = {};
        try {
            problem = JSON.parse(text);
        } catch { /* the response is not from discovery, but from a server in between */ }
        const error = new Error(`discovery answered ${answer.status} ${problem.error}: ${problem.message}`);
        throw Object.assign(error, { status: answer.status, code: problem.error, reason: problem.reason, retryAfter: Number(answer.headers.get('retry-after')) });
    }
}
