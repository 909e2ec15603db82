import type { AcquireOptions, Client, Lease } from './index.js';

export interface LeasedSessionsOptions extends Omit<AcquireOptions, 'target' | 'onUnusable'> {
    /** How many sessions, with a proxy each, at a time: the maxPoolSize of the session pool; 1 unless set. */
    proxies?: number;
    /** After that many proxies that were refused for one URL, the URL is given up; 3 unless set. */
    proxiesPerURL?: number;
}

/** Leased proxies for Crawlee: each session has a proxy of its own for as long as the session lasts. */
export class LeasedSessions {
    constructor(client: Client, options?: LeasedSessionsOptions);
    /**
     * The options of a crawler, completed with hooks, handlers and the session pool's options. A router is given as
     * requestHandler. A browser's crawler needs a launchContext, {} at least.
     */
    options<T extends { requestHandler: unknown }>(options: T): T;
    /** The option of ProxyConfiguration. */
    newUrlFunction: (sessionId?: string | number, options?: { request?: any }) => Promise<string>;
    /** The lease that a request under way goes through, for reports of a handler's own. */
    leaseOf(request: { uniqueKey: string }): Lease | undefined;
    beforeNavigation: (context: any, gotOptions?: any) => Promise<void>;
    afterNavigation: (context: any) => Promise<void>;
    /** Releases all leases. */
    close(): Promise<void>;
    [Symbol.asyncDispose](): Promise<void>;
}
