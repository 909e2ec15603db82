import type { Agent as HttpAgent } from 'node:http';
import type { Agent as HttpsAgent } from 'node:https';
import type { ConnectionOptions } from 'node:tls';

/** What a crawler can report. */
export type Result = 'ok' | 'rate_limited' | 'banned' | 'captcha' | 'target_timeout' | 'target_unreachable' | 'proxy_timeout' | 'connect_error';

export type Scheme = 'http' | 'https' | 'socks5';

/** What counts as a ban on a site: statuses (403 and 451 unless set) and texts of the page. */
export interface BanRules {
    statuses?: number[];
    texts?: (string | RegExp)[];
}

/** Rules by host name; "*" is for all others. */
export type Bans = Record<string, BanRules>;

export interface ClientOptions {
    /** Of the discovery API, such as http://discovery:8090. */
    url: string | undefined;
    /** The bearer token. */
    token?: string;
    bans?: Bans;
    /** Calls discovery; the global fetch unless set. */
    fetch?: typeof globalThis.fetch;
    /** For tests: a monotonic clock in milliseconds, and timers. */
    clock?: Partial<Clock>;
}

export interface Clock {
    now(): number;
    setTimeout(f: () => void, ms: number): unknown;
    clearTimeout(timer: any): void;
    random(): number;
    sleep(ms: number, options?: { signal?: AbortSignal }): Promise<unknown>;
}

export interface AcquireOptions {
    /** Attributes that the proxy must have. */
    selector?: Record<string, string>;
    /** The site: proxies in cooldown for it are not leased. A URL will do. */
    target?: string;
    /** Time to live after each renewal, 300 unless set. If the program is killed, the lease expires after it. */
    ttlSeconds?: number;
    /** Leases of one session get one proxy. */
    session?: string;
    /** Proxies, as "namespace/name", that must not be chosen. */
    exclude?: string[];
    /** For how long to wait for a free proxy, in all; 60 unless set. */
    patienceSeconds?: number;
    /** Waits also while the selector matches nothing. */
    waitForMatch?: boolean;
    /** What the library can speak with a proxy: http and https unless set. */
    schemes?: Scheme[];
    /** Limit of a connection to the proxy and of CONNECT; 10000 unless set. */
    connectTimeoutMs?: number;
    /** Is called when the lease ends before its release. */
    onLost?(lease: Lease, error: Lost): void;
    /** Is called once when a renewal shows that another proxy should be used from now on. */
    onUnusable?(lease: Lease): void;
}

export interface AttemptsOptions<T> extends AcquireOptions {
    /** How many attempts at most; 3 unless set. */
    attempts?: number;
    /** Judges what f returned or threw: with lease.judge, for the URL in target, unless set. */
    judge?(lease: Lease, outcome: T | Error, options: AcquireOptions): Verdict | Promise<Verdict>;
}

/** A client of one discovery API. */
export class Client {
    constructor(options: ClientOptions);
    /** Leases a proxy. It waits for one, then throws NoProxy. */
    acquire(options?: AcquireOptions): Promise<Lease>;
    /** Leases a proxy while f runs. */
    use<T>(options: AcquireOptions, f: (lease: Lease) => Promise<T> | T): Promise<T>;
    /**
     * Calls f up to three times, each time with another proxy, until judge finds no reason for a retry. Returns or
     * throws what the last call did. A ban is reported when another proxy got the page, or when there was no other. A URL
     * that several proxies are refused for is not held against them. All else is reported at once. f reads the body, too:
     * the lease is released after it.
     */
    attempts<T>(options: AttemptsOptions<T>, f: (lease: Lease) => Promise<T> | T): Promise<T>;
    /** Gives all leases back. New ones are refused. */
    close(): Promise<void>;
    /** Gives all leases back on SIGINT and SIGTERM, then lets the signal end the process. The result undoes it. */
    closeOnSignals(signals?: NodeJS.Signals[]): () => void;
    [Symbol.asyncDispose](): Promise<void>;
}

/** What the result of a request means. */
export interface Verdict {
    /** What to report, if anything. */
    report: Result | null;
    /** The site of the report; null where it concerns the proxy alone. */
    target: string | null;
    /** The next attempt uses another proxy. */
    changeProxy: boolean;
    /** The request may be sent again, when it is idempotent or nothing of it was sent to the target. */
    retry: boolean;
    /** From the response's Retry-After, at most a day. */
    retryAfterSeconds: number | null;
}

export interface JudgeOptions {
    /** Of the request. The response's own URL, after redirects, comes first. */
    url?: string;
    /** The page, for ban texts. */
    text?: string;
    bans?: Bans;
}

/**
 * Judges a response of fetch, undici, axios, got, Playwright or Puppeteer, or an error. Lease.judge knows more: the
 * stage of a failure.
 */
export function judge(outcome: unknown, options?: JudgeOptions): Verdict;

/** The option proxy of Playwright. */
export interface PlaywrightProxy {
    server: string;
    username?: string;
    password?: string;
}

/** Flags for each launch of Chromium with a proxy: without them WebRTC of a page sends UDP past the proxy. */
export const CHROMIUM_ARGS: string[];

/** A proxy that is yours until the lease is released. */
export class Lease {
    private constructor();
    readonly id: string;
    readonly proxy: { name: string; namespace: string; host: string; port: number; attributes: Record<string, string> };
    readonly target: string;
    /** Grows with every grant: of two holders of one proxy, the one with the larger token came later. */
    readonly fencingToken: number;
    readonly scheme: Scheme;
    readonly host: string;
    readonly port: number;
    readonly username: string;
    readonly password: string;
    /** Ready to use, with the password, percent-encoded. Chromium goes without a proxy when it cannot read one. */
    readonly proxyURL: string;
    /** scheme://host:port, without credentials. */
    readonly server: string;
    /** False when a holder should change to another proxy; reason has why. */
    readonly usable: boolean;
    readonly reason: string;
    /** null while the lease is active. */
    readonly error: Lost | Released | null;
    /** Aborts when the lease ends. */
    readonly signal: AbortSignal;
    /** Agents whose connections go through the proxy, and end with the lease. */
    readonly agents: { http: HttpAgent; https: HttpsAgent };
    /** Options of undici's Agent, Pool and Client; connect has options of TLS with targets. */
    undici<T extends { connect?: ConnectionOptions }>(options?: T): Omit<T, 'connect'> & { connect: (options: any, callback: (...args: any[]) => void) => void };
    /** Options of axios. */
    axios(): { httpAgent: HttpAgent; httpsAgent: HttpsAgent; proxy: false };
    /** Options of got. */
    got(): { agent: { http: HttpAgent; https: HttpsAgent }; http2: false };
    /** The option proxy of Playwright's launch and newContext. */
    playwright(): PlaywrightProxy;
    /** Flags of Chromium, CHROMIUM_ARGS among them, and what Puppeteer's page.authenticate wants. */
    chromium(): { args: string[]; credentials: { username: string; password: string } | null };
    /** Flags of Chromium for Selenium. Throws when the proxy needs a username, which Selenium cannot send. */
    selenium(): string[];
    /** Closes or calls thing when the lease ends, and returns it. */
    closing<T extends { destroy(): unknown } | { close(): unknown } | (() => unknown)>(thing: T): T;
    /** Judges a response or an error of a request through this lease's connections. */
    judge(outcome: unknown, options?: JudgeOptions): Verdict;
    /** Judges an error of a browser, or of a library with connections of its own: one CONNECT shows the stage. */
    diagnose(error: unknown, options: JudgeOptions & { url: string }): Promise<Verdict>;
    /** Judges, and reports what is to be reported. */
    record(outcome: unknown, options?: JudgeOptions): Promise<Verdict>;
    report(result: Result, options?: { target?: string | null; retryAfterSeconds?: number | null }): Promise<void>;
    /** Closes all connections and gives the proxy back. Idempotent. */
    release(): Promise<void>;
    [Symbol.asyncDispose](): Promise<void>;
}

/** The base class of all errors of this package. */
export class LeaseError extends Error {}
/** An answer of the API with a status of 400 or above. */
export class APIError extends LeaseError {
    readonly status: number;
    readonly code: string;
    readonly reason: string;
    readonly requestID: string;
    readonly retryAfterSeconds: number;
    readonly counts: Record<string, number>;
    readonly retryable: boolean;
    readonly ended: boolean;
}
/** No proxy was free within the patience. */
export class NoProxy extends APIError {}
/** The lease ended before it was released. */
export class Lost extends LeaseError {}
/** The lease was released, and its connections are closed. */
export class Released extends LeaseError {}
/** A failure between this program and the proxy. */
export class ProxyError extends LeaseError {
    readonly stage: 'dial' | 'connect';
    readonly kind: 'refused' | 'unresolved' | 'unreachable' | 'untrusted' | 'closed' | 'malformed' | 'timeout' | 'status' | 'aborted' | 'unknown';
    readonly status: number | undefined;
    /** Of the CONNECT that was refused. */
    readonly host: string | undefined;
    readonly code: 'ERR_LEASED_PROXY';
}
