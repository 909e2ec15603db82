import { APIError, LeaseError, Lost, Released } from './errors.js';
import { failureOf, judge, siteOf, urlOf } from './judge.js';
import { authority, Tunnels } from './tunnel.js';

const MAX_TTL = 366 * 86_400; // seconds
const RENEWAL = 30_000; // ms, the longest time until a holder learns that its proxy fails
const RENEWAL_TIMEOUT = 10_000; // ms, so that a renewal without an answer is repeated
const CHROMIUM_SCHEMES = ['http', 'https', 'socks5'];

/**
 * Flags that each Chromium with a proxy needs: without them WebRTC of a page sends UDP past the proxy. Chromium reads
 * the first, its headless shell the second.
 */
export const CHROMIUM_ARGS = ['webrtc', 'force-webrtc'].map((name) => `--${name}-ip-handling-policy=disable_non_proxied_udp`);

/** A proxy that is yours until the lease is released. Client.acquire makes it. */
export class Lease {
    #client;
    #options;
    #expires; // by the client's clock
    #ttlSeconds;
    #attempt = 0;
    #abort = new AbortController();
    #closing = new Set();
    #released = null;
    #tunnels;

    constructor(client, grant, expires, options) {
        const url = proxyOf(grant);
        this.#client = client;
        this.#options = options;
        this.#expires = expires;
        this.#ttlSeconds = Math.min(grant.ttlSeconds, MAX_TTL);
        this.id = grant.leaseID;
        this.proxy = grant.proxy;
        this.target = grant.target ?? '';
        this.fencingToken = grant.fencingToken;
        this.scheme = url.scheme;
        this.host = url.host;
        this.port = url.port;
        this.username = url.username;
        this.usable = true;
        this.reason = '';
        Object.defineProperty(this, 'password', { value: url.password }); // not enumerable, so that no log has it
        Object.defineProperty(this, 'proxyURL', { value: grant.proxyURL });
        this.#tunnels = new Tunnels(this, options.connectTimeoutMs ?? 10_000);
        client.renewals.schedule(this, this.#interval);
    }

    get #interval() {
        return Math.min((1000 * this.#ttlSeconds) / 3, RENEWAL);
    }

    /** scheme://host:port, without credentials. */
    get server() {
        return `${this.scheme}://${authority(this.host, this.port)}`;
    }

    /** null while the lease is active, then a Lost or a Released. */
    get error() {
        return this.#abort.signal.reason ?? null;
    }

    /** Aborts when the lease ends. */
    get signal() {
        return this.#abort.signal;
    }

    /** Agents for node:http and node:https. */
    get agents() {
        this.#speaks(['http', 'https']);
        return this.#tunnels.agents;
    }

    /** Options of undici's Agent, Pool and Client. */
    undici(options = {}) {
        this.#speaks(['http', 'https']);
        return { ...options, connect: this.#tunnels.connector(options.connect) };
    }

    /** Options of axios. */
    axios() {
        return { httpAgent: this.agents.http, httpsAgent: this.agents.https, proxy: false };
    }

    /** Options of got. */
    got() {
        return { agent: this.agents, http2: false };
    }

    /** The option proxy of Playwright's launch and newContext. */
    playwright() {
        this.#speaks(CHROMIUM_SCHEMES);
        this.#noSocksLogin();
        const login = this.username ? { username: this.username, password: this.password } : {};
        return { server: this.server, ...login };
    }

    /** Chromium's flags, for Puppeteer, and what page.authenticate wants, or null. */
    chromium() {
        this.#speaks(CHROMIUM_SCHEMES);
        this.#noSocksLogin();
        const credentials = this.username ? { username: this.username, password: this.password } : null;
        // Without the second flag Chromium reaches loopback addresses directly.
        return { args: [`--proxy-server=${this.server}`, '--proxy-bypass-list=<-loopback>', ...CHROMIUM_ARGS], credentials };
    }

    /** Chromium's flags for Selenium, which cannot log in to a proxy. */
    selenium() {
        const { args, credentials } = this.chromium();
        if (credentials) throw new LeaseError('Selenium cannot send the username that this proxy needs: lease one without, by a selector, or use Playwright');
        return args;
    }

    /** Calls thing.close(), thing.destroy() or thing() when the lease ends, and returns thing. */
    closing(thing) {
        if (this.error) {
            closeThing(thing);
            throw this.error;
        }
        this.#closing.add(thing);
        return thing;
    }

    /** Judges a response or an error of a request that went through this lease's connections. */
    judge(outcome, options = {}) {
        const host = siteOf(urlOf(outcome) ?? options.url);
        if (this.error && outcome instanceof Error && failureOf(outcome).kind !== 'untrusted') return judge(this.error);
        return judge(outcome, { bans: this.#client.bans, pendingStage: host ? this.#tunnels.pendingStage(host) : undefined, tunnelled: true, ...options });
    }

    /**
     * Judges an error of a browser, or of a library with connections of its own. When the error does not show the stage,
     * one CONNECT to the target through the proxy does.
     */
    async diagnose(error, { url, ...options } = {}) {
        const seen = failureOf(error);
        const untrusted = seen.kind === 'untrusted' && this.scheme !== 'https'; // the target's certificate, not the proxy's
        const certain = untrusted || seen.status !== undefined || ['lease_ended', 'aborted', 'refused', 'unresolved'].includes(seen.kind);
        const host = siteOf(url);
        if (certain || !host || this.scheme === 'socks5') return this.judge(error, { url, ...options, tunnelled: false });
        const { protocol, port } = new URL(url);
        try {
            const target = { host, port: Number(port) || (protocol === 'https:' ? 443 : 80) };
            (await this.#tunnels.open(target)).destroy();
        } catch (cause) {
            // Proxies may deny CONNECT to the port of http: URLs, for which browsers send none.
            const denied = protocol === 'http:' && [403, 405, 501].includes(cause.status);
            if (!denied) return this.judge(cause, { url, ...options });
        }
        return this.judge(error, { url, ...options, probed: true });
    }

    /** Judges, and reports what is to be reported. Returns the verdict. */
    async record(outcome, options = {}) {
        const verdict = this.judge(outcome, options);
        if (verdict.report && verdict.report !== 'ok') await this.report(verdict.report, verdict);
        return verdict;
    }

    /** Sends a result. While discovery is down it retries for 20 seconds. */
    async report(result, { target, retryAfterSeconds } = {}) {
        const body = { result };
        if (target) body.target = target;
        if (retryAfterSeconds) body.retryAfterSeconds = retryAfterSeconds;
        await this.#client.retry('POST', `${this.#path}/report`, body);
    }

    /** Closes all connections and gives the proxy back. Idempotent; when discovery stays unreachable the lease expires. */
    release() {
        this.#released ??= this.#giveBack();
        return this.#released;
    }

    async #giveBack() {
        this.#end(new Released('the lease was released'));
        try {
            await this.#client.retry('DELETE', this.#path);
        } catch (error) {
            if (!(error instanceof LeaseError)) throw error;
        } finally {
            this.#client.forget(this);
        }
    }

    async [Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]() {
        await this.release();
    }

    get #path() {
        return `/v1/leases/${encodeURIComponent(this.id)}`;
    }

    /** Renews. Renewals calls it when it is due. */
    async tick() {
        const left = this.#expires - this.#client.clock.now();
        if (left <= 0) return this.#lose(new Lost('the lease expired, since discovery could not be reached to renew it'));
        let next = this.#interval;
        try {
            const { body, expires } = await this.#client.call('POST', `${this.#path}/renew`, { ttlSeconds: this.#ttlSeconds }, { timeoutMs: Math.min(left, RENEWAL_TIMEOUT) });
            if (body.leaseID !== this.id) throw new LeaseError('the answer is no renewal of this lease');
            this.#expires = expires;
            this.#attempt = 0;
            this.#see(body.proxyStatus);
        } catch (error) {
            if (error instanceof APIError && error.ended) return this.#lose(new Lost(error.message, { cause: error }));
            next = this.#client.pause(error, this.#attempt++);
        }
        if (!this.error) this.#client.renewals.schedule(this, inTime(next, this.#expires - this.#client.clock.now()));
        return undefined;
    }

    // see calls onUnusable once, when the proxy is not one to stay on any more.
    #see(status) {
        if (status?.usable !== false || !this.usable) return;
        this.usable = false;
        this.reason = [status.reason, status.message].filter(Boolean).join(': ');
        callBack(this.#options.onUnusable, this);
    }

    #lose(error) {
        if (this.error) return;
        this.#end(error);
        this.#client.forget(this);
        callBack(this.#options.onLost, this, error);
    }

    #end(error) {
        if (this.error) return;
        this.#client.renewals.forget(this);
        this.#abort.abort(error);
        this.#tunnels.close(error);
        for (const thing of this.#closing) closeThing(thing);
        this.#closing.clear();
    }

    #speaks(schemes) {
        if (this.error) throw this.error;
        if (!schemes.includes(this.scheme)) {
            throw new LeaseError(`the leased proxy speaks ${this.scheme}, this library only ${schemes.join(', ')}: acquire with schemes: ${JSON.stringify(schemes)}`);
        }
    }

    #noSocksLogin() {
        if (this.scheme !== 'socks5' || !this.username) return;
        throw new LeaseError('Chromium cannot log in to a SOCKS proxy: acquire with schemes: ["http", "https"]');
    }
}

// proxyOf returns the parts of the grant's proxy. proxyURL has them where the grant itself does not.
function proxyOf(grant) {
    try {
        const url = new URL(grant.proxyURL);
        const scheme = grant.scheme ?? url.protocol.slice(0, -1);
        return {
            scheme,
            host: grant.host ?? url.hostname.replace(/^\[(.*)\]$/, '$1'),
            port: grant.port ?? (Number(url.port) || (scheme === 'https' ? 443 : 80)),
            username: grant.username ?? decodeURIComponent(url.username),
            password: grant.password ?? decodeURIComponent(url.password),
        };
    } catch { // its error may contain a password
        throw new LeaseError(`the grant of lease ${grant.leaseID} has no proxyURL that can be used: check the proxy's scheme, and that its username and password are UTF-8`);
    }
}

// inTime is the pause, or half of the time left when the lease would expire within it: a retry before a Retry-After is
// over is better than the certain loss of the lease.
function inTime(pause, left) {
    return pause < left ? pause : Math.max(0, left < 200 ? left : left / 2);
}

// callBack calls a function of the program. What it throws is a warning: it must not stop the renewals.
function callBack(f, ...args) {
    Promise.resolve().then(() => f?.(...args)).catch((error) => process.emitWarning(error instanceof Error ? error : String(error)));
}

function closeThing(thing) {
    const close = typeof thing === 'function' ? thing : thing.destroy ?? thing.close;
    Promise.resolve().then(() => close.call(thing)).catch(() => {}); // the others are closed, too, and the proxy given back
}

