// Errors of the package. None of them contains a password, a token or a URL with one.

/** The base class of all errors of this package. */
export class LeaseError extends Error {
    constructor(message, options) {
        super(message, options);
        this.name = new.target.name;
    }
}

/** An answer of the API with a status of 400 or above. */
export class APIError extends LeaseError {
    constructor(status, headers, problem) {
        super(problem.error ? `discovery answered ${status} ${problem.error}: ${problem.message}` : `discovery answered ${status}`);
        this.status = status;
        this.code = typeof problem.error === 'string' ? problem.error : '';
        this.reason = problem.reason ?? ''; // of a lease that is gone
        this.requestID = problem.instance ?? '';
        const seconds = Number(headers.get('retry-after') ?? 0);
        this.retryAfterSeconds = seconds > 0 && seconds <= 86_400 ? seconds : 0; // 0: a retry fails unless something changes
        this.counts = Object.fromEntries(Object.entries(problem).filter(([name, value]) => (
            Number.isInteger(value) && name !== 'status' && name !== 'retryAfterSeconds')));
    }

    /** Whether a retry of the same request may succeed. */
    get retryable() {
        return this.retryAfterSeconds > 0 || this.status >= 500;
    }

    /** Whether the API has ended the lease. A 404 of an intermediary has no such code. */
    get ended() {
        return this.code === 'unknown_lease' || this.code === 'lease_gone';
    }
}

/** No proxy was free within the patience. */
export class NoProxy extends APIError {}

/** The lease ended before it was released. */
export class Lost extends LeaseError {}

/** The lease was released, and its connections are closed. */
export class Released extends LeaseError {}

/**
 * A failure between this program and the proxy. stage: dial (the connection to the proxy) or connect (its answer to
 * CONNECT). kind: refused, unresolved, unreachable, untrusted, closed, malformed, timeout, unknown, or status. host: of
 * the CONNECT, which after a redirect is another than the request's first.
 */
export class ProxyError extends LeaseError {
    constructor(stage, kind, { status, host, cause } = {}) {
        const what = status ? `it answered ${status} to CONNECT` : `${stage === 'dial' ? 'connection to it' : 'CONNECT'} failed: ${kind}`;
        super(`proxy: ${what}`, { cause });
        this.stage = stage;
        this.kind = kind;
        this.status = status;
        this.host = host;
        this.code = 'ERR_LEASED_PROXY';
    }
}
