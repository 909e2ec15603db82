// What the result of one request through a leased proxy means: for the proxy, for the target, and for the request.
// client/cases.json is the table of cases that this implements; the tests read it.
import { LeaseError, Lost, ProxyError, Released } from './errors.js';
import { chromiumFailure, kindOf } from './kinds.js';

const MAX_RETRY_AFTER = 86_400; // seconds

/** The site of a URL, or null. */
export function siteOf(url) {
    try {
        return new URL(url).hostname.replace(/^\[(.*)\]$/, '$1') || null;
    } catch {
        return null;
    }
}

/**
 * Judges a response or an error. See Verdict and JudgeOptions in index.d.ts.
 */
export function judge(outcome, { url, text, bans, ...stages } = {}) {
    const response = responseOf(outcome);
    if (response) {
        const site = siteOf(response.url || url);
        return judgeResponse(response, site, rulesFor(bans, site), text, /^http:/i.test(response.url || url));
    }
    const failure = failureOf(outcome, stages);
    return { ...judgeFailure(failure, failure.host ?? siteOf(urlOf(outcome) ?? url)), retryAfterSeconds: null };
}

const keep = { report: null, target: null, changeProxy: false, retry: false, retryAfterSeconds: null };
const move = { ...keep, changeProxy: true, retry: true };

/** Statuses that mean a ban unless the options say otherwise. */
const BAN_STATUSES = [403, 451];

// rulesFor returns what counts as a ban on a site: its own rules, else those of "*".
function rulesFor(bans, site) {
    const rules = bans?.[site] ?? bans?.['*'] ?? {};
    return { statuses: rules.statuses ?? BAN_STATUSES, texts: rules.texts ?? [] };
}

function judgeResponse({ status, header }, site, rules, text, plain) {
    const retryAfterSeconds = retryAfter(header('retry-after'), header('date'));
    if (status === 407) return plain ? { ...move, report: 'connect_error' } : keep; // through a tunnel it is the site's
    if (status === 429) return { ...move, report: 'rate_limited', target: site, retryAfterSeconds };
    const banText = text !== undefined && rules.texts.some((ban) => (ban instanceof RegExp ? text.search(ban) >= 0 : text.includes(ban)));
    if (rules.statuses.includes(status) || banText) return { ...move, report: 'banned', target: site, retryAfterSeconds };
    return status < 400 ? { ...keep, report: 'ok', target: site } : keep;
}

function judgeFailure({ stage, kind, status }, site) {
    if (kind === 'lease_ended') return move;
    if (kind === 'aborted') return keep; // by the program or the browser
    if (stage === 'dial' || stage === 'connect') {
        if (kind === 'timeout') return { ...move, report: 'proxy_timeout' };
        if (kind === 'status' && status !== 407) return { ...move, report: 'target_unreachable', target: site };
        return { ...move, report: 'connect_error' };
    }
    if (kind === 'untrusted') return keep;
    if (kind === 'timeout') return { ...move, report: 'target_timeout', target: site };
    return move;
}

/**
 * Finds out at which stage a request failed. tunnelled: the connections are ours, so that every failure before the
 * tunnel is a ProxyError, but for time-outs of the library while a tunnel is pendingStage. probed: the proxy has just
 * opened a tunnel to the target.
 */
export function failureOf(error, { tunnelled = false, pendingStage, probed = false } = {}) {
    const chain = causes(error);
    for (const e of chain) {
        if (e instanceof Lost || e instanceof Released) return { stage: 'tunnel', kind: 'lease_ended' };
        if (e instanceof ProxyError) return { stage: e.stage, kind: e.kind, status: e.status, host: e.host };
        const failed = chromiumFailure(e);
        if (failed) return { ...failed, stage: (probed && 'tunnel') || failed.stage || withoutStage(failed.kind) };
        const status = connectStatus(e);
        if (status) return { stage: 'connect', kind: 'status', status };
    }
    const kinds = chain.map(kindOf);
    // Node's AbortError of AbortSignal.timeout has a TimeoutError as its cause.
    const kind = kinds.includes('timeout') ? 'timeout' : kinds.find(Boolean) ?? 'unknown';
    if (tunnelled || probed) return { stage: kind === 'timeout' ? pendingStage ?? 'tunnel' : 'tunnel', kind };
    return { stage: stageOf(chain, kind), kind };
}

// What is not known counts as a failure of the connection. A time-out without a stage is the target's, which costs a
// healthy proxy nothing, and a certificate most likely, too; Lease.diagnose finds out.
const withoutStage = (kind) => (kind === 'timeout' || kind === 'untrusted' ? 'tunnel' : 'connect');

// stageOf is for connections that a library makes by itself: to the proxy alone, since that resolves targets' names.
function stageOf(chain, kind) {
    if (['refused', 'unresolved', 'unreachable'].includes(kind)) return 'dial';
    for (const e of chain) {
        if (e.code === 'UND_ERR_CONNECT_TIMEOUT' || e.syscall === 'connect') return 'dial';
        if (e.code === 'UND_ERR_BODY_TIMEOUT' || e.response) return 'tunnel'; // after the first byte
        // got sets timings.socket when its agent has the tunnel.
        if (e.timings) return e.timings.socket === undefined || e.timings.error === e.timings.start ? 'connect' : 'tunnel';
        if (e.socket?.bytesRead > 0) return 'tunnel'; // undici's SocketError
        // Node's text when the other side closes during TLS over an existing connection.
        if (e.code === 'ECONNRESET' && 'host' in e && /before secure TLS/.test(e.message)) return 'tunnel';
    }
    return withoutStage(kind);
}

// connectStatus is the status of an answer to CONNECT that undici's ProxyAgent, got-scraping or https-proxy-agent
// refused. They have no property for it.
function connectStatus(error) {
    const found = /^Proxy response \((\d{3})\)|proxy responded with (\d{3}) |tunneling socket could not be established, statusCode=(\d{3})/i.exec(error.message ?? '');
    return found ? Number(found[1] ?? found[2] ?? found[3]) : undefined;
}

function causes(error) {
    const chain = [];
    for (let e = error; e && typeof e === 'object' && chain.length < 10 && !chain.includes(e); e = e.cause ?? e.errors?.[0]) chain.push(e);
    return chain.length > 0 ? chain : [new LeaseError(String(error))];
}

/** The URL that failed, after redirects, where the error of axios or got has it; else undefined. */
export function urlOf(error) {
    const url = error?.request?._currentUrl ?? error?.options?.url; // of follow-redirects, and of got
    return url && String(url);
}

/** Whether judge can read it as a response. */
export const isResponse = (outcome) => responseOf(outcome) !== undefined;

// responseOf reads the responses of fetch, undici, axios, got, Playwright and Puppeteer, and the errors of axios and got
// that stand for a response. Other errors give undefined.
function responseOf(outcome) {
    if (outcome instanceof Error) {
        const from = outcome.response;
        const complete = outcome.code === 'ERR_NON_2XX_3XX_RESPONSE' || outcome.code === 'ERR_BAD_REQUEST' || outcome.code === 'ERR_BAD_RESPONSE';
        return from && complete ? responseOf(from) : undefined;
    }
    const read = (value) => (typeof value === 'function' ? value.call(outcome) : value);
    const status = outcome?.statusCode ?? read(outcome?.status);
    if (!Number.isInteger(status)) return undefined;
    const headers = read(outcome.headers) ?? {};
    const header = (name) => (typeof headers.get === 'function' ? headers.get(name) : headers[name]) ?? null;
    return { status, header, url: read(outcome.url) ?? outcome.request?.res?.responseUrl };
}

// retryAfter is the header Retry-After in seconds, bounded, or null. A date counts from the response's own Date.
function retryAfter(value, date) {
    const text = String(Array.isArray(value) ? value[0] : value ?? '').trim();
    const from = Date.parse(date ?? '');
    const seconds = /^\d+$/.test(text) ? Number(text) : Math.ceil((Date.parse(text) - (Number.isNaN(from) ? Date.now() : from)) / 1000);
    return seconds > 0 ? Math.min(seconds, MAX_RETRY_AFTER) : null;
}
