// What errors of Node, undici, axios, got and Chromium mean, by their codes and classes.

const BY_CODE = new Map(Object.entries({
    refused: ['ECONNREFUSED'],
    unresolved: ['ENOTFOUND', 'EAI_AGAIN', 'EAI_FAIL', 'EAI_NODATA', 'EAI_NONAME'],
    unreachable: ['EHOSTUNREACH', 'ENETUNREACH', 'EHOSTDOWN', 'ENETDOWN', 'EADDRNOTAVAIL', 'EACCES', 'EINVAL'],
    closed: ['ECONNRESET', 'EPIPE', 'ECONNABORTED', 'ERR_STREAM_PREMATURE_CLOSE', 'UND_ERR_SOCKET'],
    aborted: ['ABORT_ERR', 'ERR_ABORTED', 'ERR_CANCELED', 'UND_ERR_ABORTED'],
    timeout: ['ETIMEDOUT', 'ESOCKETTIMEDOUT', 'UND_ERR_CONNECT_TIMEOUT', 'UND_ERR_HEADERS_TIMEOUT', 'UND_ERR_BODY_TIMEOUT'],
    untrusted: [
        'UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'UNABLE_TO_GET_ISSUER_CERT', 'UNABLE_TO_GET_ISSUER_CERT_LOCALLY', 'SELF_SIGNED_CERT_IN_CHAIN',
        'DEPTH_ZERO_SELF_SIGNED_CERT', 'CERT_HAS_EXPIRED', 'CERT_NOT_YET_VALID', 'CERT_REVOKED', 'CERT_REJECTED', 'CERT_UNTRUSTED',
        'CERT_SIGNATURE_FAILURE', 'CERT_CHAIN_TOO_LONG', 'INVALID_CA', 'INVALID_PURPOSE', 'HOSTNAME_MISMATCH', 'ERR_TLS_CERT_ALTNAME_INVALID',
    ],
}).flatMap(([kind, codes]) => codes.map((code) => [code, kind])));

const IS_TIMEOUT = new Set(['TimeoutError', 'ConnectTimeoutError', 'HeadersTimeoutError', 'BodyTimeoutError']);

/** The kind of one error, without its causes; undefined when it is not known. */
export function kindOf(error) {
    const code = String(error?.code ?? '');
    if (IS_TIMEOUT.has(error?.name) || IS_TIMEOUT.has(error?.constructor?.name)) return 'timeout';
    // axios has one code for its time-outs and for requests that the program aborts.
    if (code === 'ECONNABORTED' && error.name === 'AxiosError' && /timeout/.test(error.message)) return 'timeout';
    if (error?.name === 'AbortError') return 'aborted'; // a DOMException has a number as its code
    if (code.startsWith('HPE_')) return 'malformed';
    return BY_CODE.get(code);
}

// Errors of Chromium (net/base/net_error_list.h) as Playwright and Puppeteer pass them on.
const CHROMIUM = {
    PROXY_CONNECTION_FAILED: ['dial', 'refused'], SOCKS_CONNECTION_FAILED: ['dial', 'refused'], PROXY_CERTIFICATE_INVALID: ['dial', 'untrusted'],
    NO_SUPPORTED_PROXIES: ['dial', 'unknown'], MANDATORY_PROXY_CONFIGURATION_FAILED: ['dial', 'unknown'],
    PROXY_AUTH_UNSUPPORTED: ['connect', 'status', 407], PROXY_AUTH_REQUESTED: ['connect', 'status', 407], INVALID_AUTH_CREDENTIALS: ['connect', 'status', 407],
    UNEXPECTED_PROXY_AUTH: ['connect', 'status', 407], PROXY_AUTH_REQUESTED_WITH_NO_CONNECTION: ['connect', 'status', 407],
    SOCKS_CONNECTION_HOST_UNREACHABLE: ['connect', 'status', 502],
    TUNNEL_CONNECTION_FAILED: ['connect', 'unknown'], PROXY_UNABLE_TO_CONNECT_TO_DESTINATION: ['connect', 'status', 502],
};

/** { stage, kind, status } of an error of Chromium, or undefined. Without a stage the error does not show it. */
export function chromiumFailure(error) {
    const name = /\bnet::ERR_([A-Z0-9_]+)/.exec(error?.message ?? '')?.[1];
    if (!name) return undefined;
    const [stage, kind, status] = CHROMIUM[name] ?? [];
    if (stage) return { stage, kind, status };
    if (/^(CERT_|SSL_(?!VERSION|PROTOCOL))/.test(name)) return { stage: 'tunnel', kind: 'untrusted' };
    if (/TIMED_OUT/.test(name)) return { kind: 'timeout' };
    if (name === 'ABORTED') return { kind: 'aborted' }; // a download, a 304 without a page to show, another navigation
    return { kind: /CONNECTION_|EMPTY_RESPONSE|SOCKET_NOT_CONNECTED|SSL_/.test(name) ? 'closed' : 'unknown' };
}
