// What the tests share: a scripted stand-in of the API, proxies that fail in one particular way, and targets.
import fs from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import net from 'node:net';
import path from 'node:path';
import { Client } from 'proxylease';

const file = (name) => fs.readFileSync(new URL(`./testdata/${name}`, import.meta.url));
export const ca = file('ca.pem');
const identity = { cert: file('cert.pem'), key: file('key.pem') };

export const { cases } = JSON.parse(fs.readFileSync(new URL('../../cases.json', import.meta.url), 'utf8'));

/** Flags of Chromium in a container, without traffic of its own. */
export const FLAGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];

/** The path of the first program that is in PATH, or undefined. */
export const findProgram = (...names) => names.flatMap((name) => (process.env.PATH ?? '').split(path.delimiter).map((dir) => path.join(dir, name)))
    .find((name) => fs.existsSync(name));

const cleanups = new WeakMap();

/** Runs f when the test t ends, the last registered first. */
export function cleanup(t, f) {
    if (!cleanups.has(t)) {
        cleanups.set(t, []);
        t.after(async () => {
            for (const each of cleanups.get(t).reverse()) await each();
        });
    }
    cleanups.get(t).push(f);
}

/** Starts a server on loopback, and closes it with its connections when the test t ends. */
export async function listen(t, server, port = 0) {
    const open = new Set();
    server.on('connection', (socket) => {
        open.add(socket);
        socket.on('error', () => {}).on('close', () => open.delete(socket));
    });
    server.on('tlsClientError', () => {});
    await new Promise((resolve) => server.listen(port, '127.0.0.1', resolve));
    server.connections = open;
    cleanup(t, () => new Promise((resolve) => {
        server.close(resolve);
        server.closeAllConnections?.();
        for (const socket of open) socket.destroy();
    }));
    return server.address().port;
}

/** A port of loopback that refuses connections. */
export async function refusingPort() {
    const server = net.createServer();
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address();
    await new Promise((resolve) => server.close(resolve));
    return port;
}

/** A target: answer is a handler of requests. It speaks TLS unless plain. */
export async function target(t, answer, { plain = false } = {}) {
    const server = plain ? http.createServer(answer) : https.createServer(identity, answer);
    const port = await listen(t, server);
    return { port, server };
}

/**
 * A proxy. connect(request, socket, tunnel) handles CONNECT, where tunnel() connects to `to`; without it every name
 * leads to `to`, a port. login is the wanted "user:password". plain handles requests for http: URLs.
 */
export async function proxy(t, { to, connect, login, plain, secure = false } = {}) {
    const seen = { connects: [], plain: [], from: new Set() };
    const allowed = (request) => !login || request.headers['proxy-authorization'] === 'Basic ' + Buffer.from(login).toString('base64');
    const options = secure ? identity : {};
    const server = (secure ? https : http).createServer(options, (request, response) => {
        seen.plain.push(request.url);
        if (!allowed(request)) return response.writeHead(407, { 'Proxy-Authenticate': 'Basic realm="proxy"' }).end();
        if (plain) return plain(request, response);
        const url = new URL(request.url);
        const onward = http.request({ port: to, host: '127.0.0.1', path: url.pathname, headers: request.headers, agent: false }, (answer) => {
            response.writeHead(answer.statusCode, answer.headers);
            answer.pipe(response);
        });
        onward.on('socket', (socket) => socket.once('connect', () => seen.from.add(socket.localPort)));
        onward.on('error', () => response.destroy()).end();
        return undefined;
    });
    server.on('connect', (request, socket) => {
        seen.connects.push(request.url);
        socket.on('error', () => {});
        if (!allowed(request)) return socket.end('HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="proxy"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n');
        const tunnel = () => {
            const onward = net.connect(to, '127.0.0.1', () => {
                seen.from.add(onward.localPort);
                socket.write('HTTP/1.1 200 OK\r\n\r\n');
                socket.pipe(onward).pipe(socket);
            });
            onward.on('error', () => socket.destroy()).on('close', () => socket.destroy());
            socket.on('close', () => onward.destroy());
        };
        return connect ? connect(request, socket, tunnel) : tunnel();
    });
    const port = await listen(t, server);
    return { port, server, seen, host: '127.0.0.1', scheme: secure ? 'https' : 'http', login };
}

/** A server that accepts connections and does on(socket), by default nothing at all. */
export async function raw(t, on = () => {}, scheme = 'http') {
    const server = net.createServer(on);
    return { port: await listen(t, server), server, host: '127.0.0.1', scheme };
}

const NO_MATCH = { error: 'no_match', message: 'none is free' };

/**
 * A stand-in of the API that leases proxies, with one slot each, as far as the tests go: cooldowns, waiting, renewals.
 * It keeps all requests in calls and all reports in reports.
 */
export class API {
    calls = [];
    reports = [];
    leases = new Map();
    statusOf = {}; // proxyStatus by name, for renewals
    failing = []; // answers to come, each { status, body, headers }
    #cooldowns = new Set();
    #next = 1;

    static async start(t, proxies, options = {}) {
        const api = new API();
        api.proxies = proxies.map((p, i) => ({ name: `p${i}`, ...p }));
        api.options = { ttlSeconds: 300, ...options };
        const server = http.createServer((request, response) => api.#serve(request, response));
        api.url = `http://127.0.0.1:${await listen(t, server)}`;
        return api;
    }

    async client(t, options = {}) {
        const client = new Client({ url: this.url, token: 'CANARY-token', ...options });
        cleanup(t, () => client.close());
        return client;
    }

    async #serve(request, response) {
        let text = '';
        for await (const chunk of request) text += chunk;
        const body = text ? JSON.parse(text) : null;
        this.calls.push({ method: request.method, path: request.url, body, headers: request.headers });
        const { status, body: answer, headers } = this.failing.shift() ?? this.#answer(request, body);
        response.writeHead(status, { 'Content-Type': 'application/json', ...headers }).end(answer === undefined ? undefined : JSON.stringify(answer));
    }

    #answer({ method, url, headers }, body) {
        const [, , , id, verb] = url.split('/');
        const lease = this.leases.get(id);
        if (method === 'POST' && !id) return this.#acquire(body, headers['idempotency-key']);
        if (method === 'DELETE') {
            this.leases.delete(id);
            return { status: 204 };
        }
        if (!lease) return { status: 404, body: { error: 'unknown_lease', message: 'unknown' } };
        if (verb === 'report') {
            this.reports.push({ proxy: lease.proxy.name, ...body });
            const targets = { banned: body.target, rate_limited: body.target, target_unreachable: body.target, connect_error: '*', proxy_timeout: '*' };
            if (targets[body.result]) this.#cooldowns.add(`${lease.proxy.name} ${targets[body.result]}`);
            return { status: 204 };
        }
        return { status: 200, body: { ...this.#shown(lease), proxyStatus: this.statusOf[lease.proxy.name] ?? { verdict: 'Healthy', usable: true } } };
    }

    #acquire({ target = '', exclude = [], schemes }, key) {
        const host = target.includes('//') ? new URL(target).hostname : target;
        const again = [...this.leases.values()].find((lease) => lease.key === key);
        if (again) return { status: 201, body: this.#shown(again, true) };
        const held = (p) => [...this.leases.values()].filter((lease) => lease.proxy === p).length;
        const found = this.proxies.filter((p) => (
            held(p) < (p.maxLeases ?? 1) && !exclude.includes(`crawl/${p.name}`) && (!schemes || schemes.includes(p.scheme))
            && this.statusOf[p.name]?.usable !== false && !this.#cooldowns.has(`${p.name} *`) && !this.#cooldowns.has(`${p.name} ${host}`)
        )).sort((a, b) => held(a) - held(b))[0];
        if (!found) return { status: 409, body: NO_MATCH, headers: { 'Retry-After': '1' } };
        const lease = { id: `L${this.#next++}`, proxy: found, target: host, key };
        this.leases.set(lease.id, lease);
        return { status: 201, body: this.#shown(lease, true) };
    }

    #shown({ id, proxy: p, target }, grant) {
        const { ttlSeconds } = this.options;
        const out = {
            leaseID: id, proxy: { name: p.name, namespace: 'crawl', host: p.host, port: p.port, attributes: {} },
            ttlSeconds, expiresAt: new Date(Date.now() + 1000 * ttlSeconds).toISOString(), target, fencingToken: 1,
        };
        if (!grant) return out;
        const [username, password] = (p.login ?? '').split(/:(.*)/s);
        const strict = (text) => encodeURIComponent(text).replace(/[!'()*]/g, (c) => '%' + c.charCodeAt(0).toString(16).toUpperCase());
        const userinfo = p.login ? `${strict(username)}:${strict(password)}@` : '';
        Object.assign(out, { proxyURL: `${p.scheme}://${userinfo}${p.host}:${p.port}`, scheme: p.scheme, host: p.host, port: p.port });
        return p.login ? Object.assign(out, { username, password }) : out;
    }
}

/** A clock that moves only when a test moves it, or when something sleeps on it. */
export class FakeClock {
    #now = 0;
    #timers = new Map();
    #id = 0;
    now = () => this.#now;
    random = () => 1;
    setTimeout = (f, ms) => {
        this.#timers.set(++this.#id, { f, at: this.#now + ms });
        return this.#id;
    };
    clearTimeout = (id) => this.#timers.delete(id);
    sleep = async (ms) => this.advance(ms);

    get timers() {
        return this.#timers.size;
    }

    /** In how many ms the next timer fires. */
    get next() {
        return Math.min(...[...this.#timers.values()].map(({ at }) => at)) - this.#now;
    }

    advance(ms) {
        this.#now += ms;
        for (const [id, { f, at }] of [...this.#timers]) {
            if (at > this.#now || !this.#timers.has(id)) continue;
            this.#timers.delete(id);
            f();
        }
    }
}

/** Waits for a condition. */
export async function until(condition, what = condition) {
    const end = Date.now() + 30_000;
    while (!(await condition())) {
        if (Date.now() > end) throw new Error(`timed out waiting for ${what}`);
        await new Promise((resolve) => setTimeout(resolve, 5));
    }
}
