import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { attempts } from './attempts.js';
import { APIError, LeaseError, NoProxy } from './errors.js';
import { Lease } from './lease.js';
import { Renewals, systemClock } from './renewals.js';

const CALL_TIMEOUT = 10_000; // ms for a call, in addition to its wait
const MAX_WAIT = 30; // seconds, the longest wait that the API accepts
const MAX_RETRY_TIME = 20_000; // ms for which reports and releases are retried: twice what a rollout of discovery takes
const FIRST_PAUSE = 100; // ms
const MAX_PAUSE = 5_000;

/** A client of one discovery API. */
export class Client {
    #url;
    #token;
    #fetch;
    #leases = new Set();
    #acquiring = new Set(); // promises
    #closed = new AbortController();

    constructor({ url, token, bans = {}, fetch = globalThis.fetch, clock = {} }) {
        let base;
        try {
            base = new URL(url);
        } catch { /* below */ }
        if (!['http:', 'https:'].includes(base?.protocol) || base.username || base.password) {
            throw new TypeError('url of discovery: want http://host:port or https://host, and the token by itself');
        }
        this.#url = base.href.replace(/\/$/, '');
        this.#token = token;
        this.#fetch = fetch;
        this.bans = bans;
        this.clock = { ...systemClock, sleep: (ms, options) => delay(ms, undefined, options), ...clock };
        this.renewals = new Renewals(this.clock);
    }

    /** Leases a proxy. It waits up to patienceSeconds for one, then throws NoProxy. */
    async acquire(options = {}) {
        this.#closed.signal.throwIfAborted();
        const acquiring = this.#acquire(options);
        this.#acquiring.add(acquiring);
        try {
            return await acquiring;
        } finally {
            this.#acquiring.delete(acquiring);
        }
    }

    async #acquire(options) {
        const { patienceSeconds = 60, schemes = ['http', 'https'] } = options;
        const deadline = this.clock.now() + 1000 * patienceSeconds;
        const key = randomUUID(); // of all retries, so that no proxy stays leased because an answer was lost
        const request = requestBody(options, schemes);
        for (let attempt = 0; ; attempt++) {
            const began = this.clock.now();
            const wait = Math.floor(Math.min(MAX_WAIT, Math.max(0, (deadline - began) / 1000)));
            try {
                const { body, expires } = await this.#post(key, { ...request, wait });
                return await this.#grant(body, expires, options, schemes);
            } catch (error) {
                const { aborted, reason } = this.#closed.signal;
                const left = deadline - this.clock.now();
                const passes = this.#passes(error) || (options.waitForMatch && error instanceof NoProxy);
                if (aborted || !passes || left <= 0) {
                    const refused = error.fatal || (error instanceof APIError && error.status < 500); // so nothing is leased by this key
                    if (aborted || !refused) await this.#undo(key, request);
                    throw aborted ? reason : error;
                }
                // The API has waited already. The next call waits for the rest of the patience.
                const waited = error instanceof NoProxy && wait > 0 && this.clock.now() - began >= 900 * wait;
                await this.clock.sleep(Math.min(waited ? FIRST_PAUSE : this.pause(error, attempt), left), { signal: this.#closed.signal }).catch(() => {});
            }
        }
    }

    #post(key, body) {
        const options = { headers: { 'Idempotency-Key': key }, timeoutMs: CALL_TIMEOUT + 1000 * body.wait, signal: this.#closed.signal };
        return this.call('POST', '/v1/leases', body, options);
    }

    async #grant(body, expires, options, schemes) {
        if (typeof body.leaseID !== 'string' || !(body.ttlSeconds > 0)) throw new LeaseError('discovery\'s grant has no leaseID or no ttlSeconds');
        let lease;
        try {
            lease = new Lease(this, body, expires, options);
        } catch (error) {
            await this.retry('DELETE', `/v1/leases/${encodeURIComponent(body.leaseID)}`);
            throw Object.assign(error, { fatal: true });
        }
        this.#leases.add(lease);
        if (schemes.length > 0 && !schemes.includes(lease.scheme)) {
            await lease.release();
            const error = new LeaseError(`discovery granted a proxy that speaks ${lease.scheme}, wanted ${schemes.join(', ')}`);
            throw Object.assign(error, { fatal: true });
        }
        return lease;
    }

    // undo gives back what calls without an answer may have been granted: the same key returns the same lease.
    async #undo(key, request) {
        try {
            const { body } = await this.call('POST', '/v1/leases', { ...request, wait: 0 }, { headers: { 'Idempotency-Key': key } });
            await this.call('DELETE', `/v1/leases/${encodeURIComponent(body.leaseID)}`);
        } catch { /* nothing was granted, or it expires */ }
    }

    /** Leases a proxy while f runs. */
    async use(options, f) {
        const lease = await this.acquire(options);
        try {
            return await f(lease);
        } finally {
            await lease.release();
        }
    }

    /** Calls f(lease) up to three times, each with another proxy, and reports what came of it. */
    attempts(options, f) {
        return attempts(this, options, f);
    }

    /** Gives all leases back. New ones are refused. */
    async close() {
        this.#closed.abort(new LeaseError('the client is closed'));
        await Promise.allSettled(this.#acquiring);
        await Promise.allSettled([...this.#leases].map((lease) => lease.release()));
    }

    async [Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]() {
        await this.close();
    }

    /** Gives all leases back on SIGINT and SIGTERM, then lets the signal end the process. Returns a function that undoes it. */
    closeOnSignals(signals = ['SIGINT', 'SIGTERM']) {
        const stop = async (signal) => {
            await this.close();
            undo();
            process.kill(process.pid, signal);
        };
        const undo = () => signals.forEach((signal) => process.off(signal, stop));
        signals.forEach((signal) => process.on(signal, stop));
        return undo;
    }

    forget(lease) {
        this.#leases.delete(lease);
    }

    /** Makes an idempotent call, and retries it while discovery is down. */
    async retry(method, path, body) {
        const deadline = this.clock.now() + MAX_RETRY_TIME;
        for (let attempt = 0; ; attempt++) {
            try {
                await this.call(method, path, body);
                return;
            } catch (error) {
                const pause = this.pause(error, attempt);
                if (!this.#passes(error) || this.clock.now() + pause > deadline) throw error;
                await this.clock.sleep(pause);
            }
        }
    }

    // passes reports whether a retry of the same request may succeed.
    #passes(error) {
        if (error instanceof APIError) return error.retryable;
        return error instanceof LeaseError && !error.fatal;
    }

    /** Milliseconds before a retry: exponential backoff with jitter, or the Retry-After of another refusal than no_match. */
    pause(error, attempt) {
        const backoff = Math.min(FIRST_PAUSE * 2 ** Math.min(attempt, 10), MAX_PAUSE) * (0.5 + this.clock.random() / 2);
        const retryAfter = 1000 * (error instanceof APIError ? error.retryAfterSeconds : 0);
        // The Retry-After of a no_match is the latest time at which a proxy is free.
        if (error instanceof NoProxy) return Math.min(retryAfter || MAX_PAUSE, Math.max(1000, backoff));
        return retryAfter || backoff;
    }

    /** Makes one call: { body, expires }, the latter by the client's clock when the body has an expiresAt. */
    async call(method, path, body, { headers = {}, timeoutMs = CALL_TIMEOUT, signal } = {}) {
        const sent = this.clock.now();
        const { answer, text } = await this.#send(method, path, body, headers, timeoutMs, signal);
        let parsed = null;
        try {
            parsed = text ? JSON.parse(text) : {};
        } catch { /* an intermediary answered */ }
        const object = parsed !== null && typeof parsed === 'object' && !Array.isArray(parsed);
        if (!answer.ok) {
            const problem = object ? parsed : {};
            const Kind = problem.error === 'no_match' ? NoProxy : APIError;
            throw new Kind(answer.status, answer.headers, problem);
        }
        if (!object) throw new LeaseError(`discovery at ${new URL(this.#url).host}: the answer is no JSON object`);
        return { body: parsed, expires: this.#expiry(parsed, answer.headers, sent) };
    }

    async #send(method, path, body, headers, timeoutMs, signal) {
        const abort = new AbortController();
        const stop = () => abort.abort();
        const timer = this.clock.setTimeout(stop, timeoutMs);
        signal?.addEventListener('abort', stop);
        if (signal?.aborted) stop();
        const all = { ...headers };
        if (this.#token) all.Authorization = `Bearer ${this.#token}`;
        if (body) all['Content-Type'] = 'application/json';
        try {
            const answer = await this.#fetch(this.#url + path, { method, headers: all, body: body && JSON.stringify(body), signal: abort.signal });
            return { answer, text: await answer.text() };
        } catch (error) {
            const why = abort.signal.aborted ? 'no answer in time' : error.cause?.message || error.cause?.code || error.message;
            throw new LeaseError(`discovery at ${new URL(this.#url).host}: ${why}`, { cause: error });
        } finally {
            this.clock.clearTimeout(timer);
            signal?.removeEventListener('abort', stop);
        }
    }

    // expiry is the earliest time at which a lease expires. The API's clock may differ: expiresAt counts from the
    // answer's Date, which is rounded down to seconds.
    #expiry({ expiresAt, ttlSeconds }, headers, sent) {
        const left = Date.parse(expiresAt ?? '') - Date.parse(headers.get('date') ?? '');
        return Number.isNaN(left) ? sent + 1000 * (ttlSeconds ?? 0) : this.clock.now() + left - 1000;
    }
}

function requestBody({ selector, target, ttlSeconds = 300, session, exclude, waitForMatch }, schemes) {
    const body = { ttlSeconds };
    if (schemes.length > 0) body.schemes = schemes;
    if (selector && Object.keys(selector).length > 0) body.selector = selector;
    if (exclude?.length > 0) body.exclude = exclude;
    if (target) body.target = target;
    if (session) body.session = session;
    if (waitForMatch) body.waitForMatch = true;
    return body;
}
