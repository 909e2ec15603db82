// Every case of client/cases.json, by real libraries that raise the real errors.
import assert from 'node:assert/strict';
import http from 'node:http';
import https from 'node:https';
import { test } from 'node:test';
import axios from 'axios';
import got from 'got';
import { Agent, ProxyAgent, fetch as undiciFetch } from 'undici';
import { judge } from 'proxylease';
import { API, ca, cases, proxy, raw, refusingPort, target } from './harness.js';

const PATIENCE = 30_000; // ms, of all but the cases of time-outs

// Each library requests url through the lease and returns or throws what it has.
const libraries = {
    'node:https': (lease, { url, tlsOptions, timeout }) => new Promise((resolve, reject) => {
        const module = url.startsWith('https:') ? https : http;
        const agent = url.startsWith('https:') ? lease.agents.https : lease.agents.http;
        const request = module.get(url, { agent, ...tlsOptions, signal: AbortSignal.timeout(timeout) }, (response) => {
            response.resume().on('end', () => resolve(response));
        }).on('error', reject);
        return request;
    }),
    axios: (lease, { url, tlsOptions, timeout }) => {
        const options = lease.axios();
        Object.assign(options.httpsAgent.options, tlsOptions);
        return axios.get(url, { ...options, timeout: timeout });
    },
    got: (lease, { url, tlsOptions, timeout }) => got(url, {
        ...lease.got(), https: { certificateAuthority: tlsOptions.ca }, retry: { limit: 0 }, timeout: { request: timeout },
    }),
    undici: (lease, { url, tlsOptions, timeout }) => {
        const dispatcher = lease.closing(new Agent({ ...lease.undici({ connect: tlsOptions }), headersTimeout: timeout }));
        return undiciFetch(url, { dispatcher, signal: AbortSignal.timeout(timeout) });
    },
    // undici's own connections: their errors do not always show the stage.
    'undici ProxyAgent': (lease, { url, tlsOptions, timeout, secureProxy }) => {
        const dispatcher = lease.closing(new ProxyAgent({
            uri: lease.server, requestTls: tlsOptions, proxyTls: { timeout }, headersTimeout: timeout, proxyTunnel: !url.startsWith('http:') || secureProxy,
        }));
        return undiciFetch(url, { dispatcher, signal: AbortSignal.timeout(timeout) });
    },
};

// situation returns the proxy and the request in which a case happens.
async function situation(t, { at, via, is, retryAfterSeconds }) {
    const request = { url: 'https://site.example/page', tlsOptions: { ca }, arrived: at !== 'tunnel' || is !== 'timeout' };
    const through = async (answer) => proxy(t, { to: (await target(t, answer)).port });
    const hang = () => {
        request.arrived = true;
    };
    const answers = {
        dial: {
            refused: async () => ({ scheme: 'http', host: '127.0.0.1', port: await refusingPort() }),
            unresolved: () => ({ scheme: 'http', host: 'proxy.invalid', port: 3128 }),
            unreachable: () => ({ scheme: 'http', host: '255.255.255.255', port: 3128 }),
            untrusted: () => proxy(t, { to: 1, secure: true }),
            timeout: () => raw(t, () => {}, 'https'), // never speaks TLS
        },
        connect: {
            closed: () => raw(t, (socket) => socket.once('data', () => socket.end())),
            malformed: () => raw(t, (socket) => socket.once('data', () => socket.end('SSH-2.0-OpenSSH_9.2\r\n\r\n'))),
            timeout: () => raw(t),
            status: () => proxy(t, { connect: (_, socket) => socket.end(`HTTP/1.1 ${is} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n`) }),
        },
        tunnel: {
            untrusted: async () => {
                request.tlsOptions = {};
                return through((_, response) => response.end());
            },
            closed: () => through((incoming) => incoming.socket.destroy()),
            timeout: () => through(hang),
            lease_ended: async () => through(() => request.end()),
        },
        response: {
            status: () => {
                const headers = retryAfterSeconds ? { 'Retry-After': String(retryAfterSeconds) } : {};
                if (via !== 'plain') return through((_, response) => response.writeHead(is, headers).end());
                request.url = 'http://site.example/page';
                return proxy(t, { login: 'some:other', plain: (_, response) => response.writeHead(407).end() }).then((p) => ({ ...p, login: undefined }));
            },
        },
    };
    return [await answers[at][Number.isInteger(is) ? 'status' : is](), request];
}

async function outcomeOf(promise) {
    try {
        return await promise;
    } catch (error) {
        return error;
    }
}

for (const [name, library] of Object.entries(libraries)) {
    test(`the table of cases with ${name}`, { concurrency: 8 }, async (t) => {
        const own = name.endsWith('ProxyAgent');
        await Promise.all(cases.filter((c) => c.is !== 'unknown').map((c) => t.test(c.name, async (s) => {
            const [through, request] = await situation(s, c);
            const api = await API.start(s, [{ maxLeases: 9, ...through }]);
            const client = await api.client(s);
            const lease = await client.acquire({ connectTimeoutMs: c.is === 'timeout' && c.at !== 'tunnel' ? 100 : PATIENCE });
            request.end = () => lease.release();
            request.secureProxy = through.scheme === 'https';
            let outcome;
            // undici's ProxyAgent dials a proxy that closes again and again.
            const short = c.is === 'timeout' || (own && c.at === 'connect' && c.is === 'closed');
            for (request.timeout = short ? 300 : PATIENCE; !outcome || !request.arrived; request.timeout *= 4) {
                outcome = await outcomeOf(library(lease, request)); // on a slow machine the first one ends before it arrives
            }
            const options = { url: request.url };
            const verdict = own && outcome instanceof Error ? await lease.diagnose(outcome, options) : lease.judge(outcome, options);
            const hidden = name.startsWith('undici') && c.via === 'tunnel'; // fetch has a network error without a text in place of a 407
            const why = outcome instanceof Error ? `${outcome.name} ${outcome.code}: ${outcome.message}; ${outcome.cause}` : outcome.status;
            assert.deepEqual(verdict, {
                report: c.report, target: c.target && 'site.example', changeProxy: hidden || c.changeProxy, retry: hidden || c.retry, retryAfterSeconds: c.retryAfterSeconds ?? null,
            }, String(why));
            assert.doesNotMatch(String(why), /CANARY/);
        })));
    });
}

test('an error that is not known counts as a failure of the connection', () => {
    const known = cases.find((c) => c.is === 'unknown');
    for (const strange of [new (class Strange extends Error {})('x'), new TypeError('fetch failed'), 'text', { code: 'E_NEW' }]) {
        const { report, target: site, changeProxy, retry } = judge(strange, { url: 'https://site.example/' });
        assert.deepEqual({ report, target: site, changeProxy, retry }, { report: known.report, target: known.target, changeProxy: known.changeProxy, retry: known.retry });
    }
});

test('what the program aborts itself is no fault of the proxy', async (t) => {
    const frozen = await raw(t);
    const api = await API.start(t, [frozen]);
    const client = await api.client(t);
    const lease = await client.acquire();
    const abort = new AbortController();
    const dispatcher = new Agent(lease.undici());
    const errors = [
        undiciFetch('https://site.example/', { dispatcher, signal: abort.signal }), axios.get('https://site.example/', { ...lease.axios(), signal: abort.signal }),
        got('https://site.example/', { ...lease.got(), signal: abort.signal }),
    ].map(outcomeOf);
    setImmediate(() => abort.abort());
    for (const error of await Promise.all(errors)) {
        const { report, changeProxy, retry } = lease.judge(error, { url: 'https://site.example/' });
        assert.deepEqual([report, changeProxy, retry], [null, false, false], String(error));
    }
});

test('all cases are of a kind that these tests produce', () => {
    const kinds = new Set(cases.map((c) => `${c.at} ${Number.isInteger(c.is) ? 'status' : c.is}`));
    assert.equal(kinds.size, 15, [...kinds].join(', '));
});
