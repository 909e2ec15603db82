// Leased proxies for Crawlee: each session has a proxy of its own for as long as the session lasts.
import { NoProxy } from './errors.js';
import { siteOf } from './judge.js';

/**
 *     const sessions = new LeasedSessions(client, { selector: { geo: 'eu' } });
 *     const crawler = new HttpCrawler(sessions.options({
 *         proxyConfiguration: new ProxyConfiguration({ newUrlFunction: sessions.newUrlFunction }),
 *         requestHandler, ...
 *     }));
 *     try { await crawler.run(urls); } finally { await sessions.close(); }
 *
 * A session that Crawlee retires by itself, such as after 50 uses, is released without a report.
 */
export class LeasedSessions {
    #client;
    #acquire;
    #proxies;
    #proxiesPerURL;
    #bySession = new Map(); // Use by session id
    #byRequest = new Map(); // Use by the request's unique key
    #refusedBy = new Map(); // names of proxies by the unique keys of the requests that a site refused
    #failures = new WeakMap(); // what got threw, by request: Crawlee throws an error without a code instead
    #followed = new WeakSet(); // session pools
    #released = new Set(); // promises

    constructor(client, { proxies = 1, proxiesPerURL = 3, ...acquire } = {}) {
        this.#client = client;
        this.#proxies = proxies;
        this.#proxiesPerURL = proxiesPerURL;
        this.#acquire = acquire;
    }

    /** The options of a crawler, completed with what leases need. */
    options(options) {
        const hooks = (name, own, last) => (last ? [...(options[name] ?? []), own] : [own, ...(options[name] ?? [])]);
        const { requestHandler, errorHandler, failedRequestHandler } = options;
        const after = (handler) => async (context, error) => {
            try {
                await this.#failed(context, error);
                await handler?.(context, error);
            } finally {
                this.#done(context.request);
            }
        };
        return {
            ...options,
            preNavigationHooks: hooks('preNavigationHooks', this.beforeNavigation, true),
            postNavigationHooks: hooks('postNavigationHooks', this.afterNavigation, false),
            // Crawlee would retire sessions for 401, 403 and 429 of a URL that all proxies are refused for.
            sessionPoolOptions: { maxPoolSize: this.#proxies, ...options.sessionPoolOptions, blockedStatusCodes: [] },
            ...(requestHandler && {
                requestHandler: async (context) => {
                    await this.#checkText(context);
                    const result = await requestHandler(context);
                    this.#done(context.request);
                    return result;
                },
            }),
            errorHandler: after(errorHandler),
            failedRequestHandler: after(failedRequestHandler),
        };
    }

    /** The option of ProxyConfiguration. */
    newUrlFunction = async (sessionId = 'all', { request } = {}) => {
        this.#releaseExpired();
        const refused = this.#refusedBy.get(request?.uniqueKey);
        let use = this.#bySession.get(sessionId);
        if (use?.lease && (use.lease.error || !use.lease.usable)) this.#retire(use);
        let lease;
        try {
            use = this.#bySession.get(sessionId) ?? this.#lease(sessionId, request, refused);
            lease = await use.leasing;
            if (refused?.has(nameOf(lease))) { // another proxy for this request alone
                use = this.#lease(null, request, refused);
                lease = await use.leasing;
            }
        } catch (error) {
            if (refused && error instanceof NoProxy) request.noRetry = true; // all others were refused, too, or are in use
            throw error;
        }
        if (request) {
            use.requests.add(request.uniqueKey);
            this.#byRequest.set(request.uniqueKey, use);
        }
        return lease.proxyURL;
    };

    #lease(key, request, refused) {
        const use = { key, requests: new Set(), lease: null, session: null, retired: key === null };
        use.leasing = this.#client.acquire({
            ...this.#acquire, target: request?.url ?? '', exclude: [...(this.#acquire.exclude ?? []), ...(refused ?? [])],
            onUnusable: () => this.#retire(use),
            onLost: (lease, error) => {
                this.#retire(use);
                this.#acquire.onLost?.(lease, error);
            },
        });
        if (key !== null) this.#bySession.set(key, use);
        use.leasing.then((lease) => {
            use.lease = lease;
        }, () => this.#retire(use));
        return use;
    }

    /** The lease that a request under way goes through, for reports of a handler's own. */
    leaseOf(request) {
        return this.#byRequest.get(request.uniqueKey)?.lease ?? undefined;
    }

    /** A preNavigationHook; options adds it. */
    beforeNavigation = async (context, gotOptions) => {
        const { crawler, request, session } = context;
        const use = this.#byRequest.get(request.uniqueKey);
        if (use && use.key !== null) use.session = session ?? null;
        const pool = crawler?.sessionPool;
        if (pool && !this.#followed.has(pool)) {
            this.#followed.add(pool);
            pool.on('sessionRetired', (retired) => this.#retire(this.#bySession.get(retired.id)));
        }
        this.#failures.delete(request);
        if (context.page || !gotOptions || !use?.lease) return;
        // A tunnel that is kept would use the proxy after the lease has ended.
        gotOptions.headers = { ...gotOptions.headers, connection: 'close' };
        gotOptions.http2 = false; // HTTP/2 has no such header
        gotOptions.signal = use.lease.signal;
        const limit = crawler?.navigationTimeoutMillis;
        if (limit && !gotOptions.timeout) gotOptions.timeout = { request: 0.95 * limit }; // got's time-out shows the stage
        const beforeError = (error) => {
            this.#failures.set(request, error);
            return error;
        };
        gotOptions.hooks = { ...gotOptions.hooks, beforeError: [...(gotOptions.hooks?.beforeError ?? []), beforeError] };
    };

    /** A postNavigationHook; options adds it. It throws when the site has refused the proxy. */
    afterNavigation = async (context) => {
        const { request, response } = context;
        const use = this.#byRequest.get(request.uniqueKey);
        if (!use?.lease || !response) return;
        await this.#conclude(context, use, use.lease.judge(response, { url: request.url }));
    };

    async #checkText(context) {
        const { request, response } = context;
        const use = this.#byRequest.get(request.uniqueKey);
        const url = request.loadedUrl ?? request.url;
        const rules = this.#client.bans[siteOf(url)] ?? this.#client.bans['*'];
        if (!use?.lease || !response || !rules?.texts?.length) return;
        const text = context.page ? await context.page.content() : String(context.body ?? '');
        await this.#conclude(context, use, use.lease.judge(response, { url, text }));
    }

    // conclude acts on a verdict about a response.
    async #conclude({ request, log }, use, verdict) {
        if (!verdict.changeProxy) {
            if (verdict.report === 'ok') this.#refusedBy.delete(request.uniqueKey);
            return;
        }
        this.#failures.set(request, null); // the error that follows is this one
        if (verdict.report !== 'banned') await this.#move(use, verdict, log);
        else if (this.#refused(request, use) === 1) await this.#move(use, verdict, log);
        throw new Error(`${nameOf(use.lease)}: ${verdict.report} by ${verdict.target ?? 'the proxy'}`);
    }

    // refused returns how many proxies a site has refused for this request. After proxiesPerURL it is given up: that is
    // the URL's doing. Only the first is reported.
    #refused(request, use) {
        const names = this.#refusedBy.get(request.uniqueKey) ?? new Set();
        this.#refusedBy.set(request.uniqueKey, names.add(nameOf(use.lease)));
        if (names.size >= this.#proxiesPerURL) request.noRetry = true;
        return names.size;
    }

    // failed acts on an error that is not about a response.
    async #failed({ request, log }, error) {
        const use = this.#byRequest.get(request.uniqueKey);
        const known = this.#failures.get(request);
        if (!use?.lease || known === null || (!known && request.loadedUrl)) return; // else the request handler's own
        this.#failures.set(request, null);
        const verdict = await use.lease.diagnose(known ?? error, { url: request.url });
        if (verdict.changeProxy) await this.#move(use, verdict, log);
        if (!verdict.changeProxy && !verdict.retry) request.noRetry = true;
    }

    async #move(use, verdict, log) {
        if (verdict.report) {
            await use.lease.report(verdict.report, verdict).catch((error) => log?.warning?.(`report ${verdict.report}: ${error.message}`));
        }
        this.#retire(use);
    }

    // retire takes the use's proxy away from its session; the lease is released when no request is under way.
    #retire(use) {
        if (!use) return;
        const first = !use.retired;
        use.retired = true;
        if (this.#bySession.get(use.key) === use) this.#bySession.delete(use.key);
        if (first && use.session?.isUsable?.()) use.session.retire();
        this.#releaseIdle(use);
    }

    #done(request) {
        const use = this.#byRequest.get(request.uniqueKey);
        this.#byRequest.delete(request.uniqueKey);
        use?.requests.delete(request.uniqueKey);
        this.#releaseIdle(use);
    }

    #releaseIdle(use) {
        if (!use?.retired || use.requests.size > 0) return;
        const released = use.leasing.then((lease) => lease.release()).catch(() => {}).finally(() => this.#released.delete(released));
        this.#released.add(released);
    }

    // Crawlee drops sessions that are too old without an event.
    #releaseExpired() {
        for (const use of this.#bySession.values()) if (use.session?.isExpired?.()) this.#retire(use);
    }

    /** Releases all leases. */
    async close() {
        for (const use of new Set([...this.#bySession.values(), ...this.#byRequest.values()])) {
            use.requests.clear();
            this.#retire(use);
        }
        await Promise.all(this.#released);
    }

    async [Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]() {
        await this.close();
    }
}

const nameOf = (lease) => `${lease.proxy.namespace}/${lease.proxy.name}`;
