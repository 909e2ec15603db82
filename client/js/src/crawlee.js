// Leased proxies for Crawlee: each session has a proxy of its own for as long as the session lasts.
import { NoProxy } from './errors.js';
import { siteOf } from './judge.js';
import { CHROMIUM_ARGS } from './lease.js';

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
    #refusedBy = new Map(); // { use, verdict } by names of proxies, by the unique keys of the requests that a site refused
    #failures = new WeakMap(); // what got threw, by request: Crawlee throws an error without a code instead
    #followed = new WeakSet(); // session pools
    #launches = false;
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
        const { requestHandler, errorHandler, failedRequestHandler, launchContext } = options;
        if (typeof requestHandler !== 'function') throw new TypeError('options of the crawler: want requestHandler, which may be a router: requestHandler: router');
        this.#launches ||= Boolean(launchContext);
        const after = (handler, last) => async (context, error) => {
            try {
                await this.#failed(context, error);
                await handler?.(context, error);
            } finally {
                if (last) await this.#settle(context.request, context.request.retryCount === 0, context.log);
                this.#done(context.request);
            }
        };
        return {
            ...options,
            preNavigationHooks: hooks('preNavigationHooks', this.beforeNavigation, true),
            postNavigationHooks: hooks('postNavigationHooks', this.afterNavigation, false),
            // Crawlee would retire sessions for 401, 403 and 429 of a URL that all proxies are refused for.
            sessionPoolOptions: { maxPoolSize: this.#proxies, ...options.sessionPoolOptions, blockedStatusCodes: [] },
            ...(launchContext && { launchContext: launching(launchContext) }),
            requestHandler: async (context) => {
                await this.#checkPage(context);
                const result = await requestHandler(context);
                this.#done(context.request);
                return result;
            },
            errorHandler: after(errorHandler, false),
            failedRequestHandler: after(failedRequestHandler, true),
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
            if (refused?.has(nameOf(lease))) {
                use = await this.#another(request, refused);
                lease = await use.leasing;
            }
        } catch (error) {
            if (refused && error instanceof NoProxy) {
                request.noRetry = true; // all others were refused, too, or are in use
                await this.#settle(request, refused.size === 1);
            }
            throw error;
        }
        if (request) {
            use.requests.add(request.uniqueKey);
            this.#byRequest.set(request.uniqueKey, use);
        }
        return lease.proxyURL;
    };

    // another finds a proxy for this request alone, or else one of another session.
    async #another(request, refused) {
        const other = () => [...this.#bySession.values()].find(({ lease }) => lease?.usable && !lease.error && !refused.has(nameOf(lease)));
        const use = this.#lease(null, request, refused, other() && { patienceSeconds: 0 });
        try {
            await use.leasing;
            return use;
        } catch (error) {
            const shared = error instanceof NoProxy && other();
            if (!shared) throw error;
            return shared;
        }
    }

    #lease(key, request, refused, options) {
        const use = { key, requests: new Set(), suspected: new Set(), bannedBy: new Set(), lease: null, session: null, retired: key === null };
        use.leasing = this.#client.acquire({
            ...this.#acquire, ...options, target: request?.url ?? '', exclude: [...(this.#acquire.exclude ?? []), ...(refused?.keys() ?? [])],
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
        if (context.page && !this.#launches) {
            request.noRetry = true;
            throw new TypeError('options of a browser\'s crawler: want launchContext, {} at least, so that each proxy gets a browser of its own');
        }
        const use = this.#byRequest.get(request.uniqueKey);
        if (use && use.key === session?.id) use.session = session;
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

    // checkPage acts on what the page says, and on that it was had.
    async #checkPage(context) {
        const { request, response } = context;
        const use = this.#byRequest.get(request.uniqueKey);
        const url = request.loadedUrl ?? request.url;
        const rules = this.#client.bans[siteOf(url)] ?? this.#client.bans['*'];
        if (!use?.lease || !response) return;
        let text;
        if (rules?.texts?.length) text = context.page ? await context.page.content() : String(context.body ?? '');
        const verdict = use.lease.judge(response, { url, text });
        await this.#conclude(context, use, verdict);
        if (verdict.report === 'ok') await this.#settle(request, true, context.log);
    }

    // conclude acts on a verdict about a response.
    async #conclude({ request, log }, use, verdict) {
        if (!verdict.changeProxy) return;
        this.#failures.set(request, null); // the error that follows is this one
        if (verdict.report !== 'banned') await this.#move(use, verdict, log);
        else this.#refused(request, use, verdict);
        throw new Error(`${nameOf(use.lease)}: ${verdict.report} by ${verdict.target ?? 'the proxy'}`);
    }

    // refused notes that a site refuses a proxy for this request. The lease is kept, for a report, until another proxy has
    // got the page. After proxiesPerURL the request is given up: that is the URL's doing.
    #refused(request, use, verdict) {
        const refused = this.#refusedBy.get(request.uniqueKey) ?? new Map();
        this.#refusedBy.set(request.uniqueKey, refused.set(nameOf(use.lease), { use, verdict }));
        use.suspected.add(request.uniqueKey);
        if (refused.size >= this.#proxiesPerURL) request.noRetry = true;
        const { __crawlee: internal } = request.userData ?? {};
        if (internal) internal.forefront = true; // the retry is the queue's next
    }

    // settle ends the suspicions that a request has raised, with a report where the proxies are banned.
    async #settle(request, banned, log) {
        const refused = this.#refusedBy.get(request.uniqueKey) ?? new Map();
        this.#refusedBy.delete(request.uniqueKey);
        for (const { use, verdict } of refused.values()) {
            if (banned) await this.#report(use, verdict, log);
            use.suspected.delete(request.uniqueKey);
            if (banned) this.#retire(use);
            else this.#releaseIdle(use);
        }
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
        if (verdict.report) await this.#report(use, verdict, log);
        this.#retire(use);
    }

    // report sends a ban once for each site: other URLs may show the same one.
    async #report(use, verdict, log) {
        const ban = verdict.report === 'banned' && verdict.target;
        if (ban && use.bannedBy.has(ban)) return;
        if (ban) use.bannedBy.add(ban);
        await use.lease.report(verdict.report, verdict).catch((error) => log?.warning?.(`report ${verdict.report}: ${error.message}`));
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
        if (!use?.retired || use.requests.size > 0 || use.suspected.size > 0) return;
        const released = use.leasing.then((lease) => lease.release()).catch(() => {}).finally(() => this.#released.delete(released));
        this.#released.add(released);
    }

    // Crawlee drops sessions that are too old without an event.
    #releaseExpired() {
        for (const use of this.#bySession.values()) if (use.session?.isExpired?.()) this.#retire(use);
    }

    /** Releases all leases. */
    async close() {
        const suspects = [...this.#refusedBy.values()].flatMap((refused) => [...refused.values()].map(({ use }) => use));
        for (const use of new Set([...this.#bySession.values(), ...this.#byRequest.values(), ...suspects])) {
            use.requests.clear();
            use.suspected.clear();
            this.#retire(use);
        }
        await Promise.all(this.#released);
    }

    async [Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]() {
        await this.close();
    }
}

// launching completes what a browser's crawler launches: a browser for each proxy, without WebRTC past it.
function launching({ launchOptions, ...context }) {
    const args = [...(launchOptions?.args ?? []), ...CHROMIUM_ARGS];
    return { ...context, ...(!context.useIncognitoPages && { browserPerProxy: true }), launchOptions: { ...launchOptions, args } };
}

const nameOf = (lease) => `${lease.proxy.namespace}/${lease.proxy.name}`;
