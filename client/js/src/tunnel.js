// Connections through one proxy: dial, CONNECT, TLS with the target. A failure before the tunnel is a ProxyError with
// its stage; what fails later is the target's.
import http from 'node:http';
import https from 'node:https';
import net from 'node:net';
import tls from 'node:tls';
import { ProxyError } from './errors.js';
import { kindOf } from './kinds.js';

const MAX_HEAD = 64 * 1024; // bytes of the proxy's answer to CONNECT

/** The value of Proxy-Authorization, or undefined. */
export function authorization({ username, password }) {
    if (!username && !password) return undefined;
    return 'Basic ' + Buffer.from(`${username}:${password ?? ''}`).toString('base64');
}

export const authority = (host, port) => `${net.isIPv6(host) ? `[${host}]` : host}:${port}`;

/** Tunnels of one lease. They end with it. */
export class Tunnels {
    #proxy;
    #timeoutMs;
    #sockets = new Set();
    #pending = new Set();
    #open = []; // hosts of open tunnels
    #ended = null;
    #agents = null;

    constructor(proxy, timeoutMs) {
        this.#proxy = proxy;
        this.#timeoutMs = timeoutMs;
    }

    /**
     * The stage of a tunnel to host that is not open yet, or undefined. With another one open, a time-out may be of
     * either, and costs the proxy nothing.
     */
    pendingStage(host) {
        if (this.#open.includes(host)) return undefined;
        for (const attempt of this.#pending) if (attempt.host === host) return attempt.stage;
        return undefined;
    }

    /** Connects to the proxy; with CONNECT when target, { host, port }, is set. */
    async open(target) {
        if (this.#ended) throw this.#ended;
        const attempt = { host: target?.host, stage: 'dial' };
        this.#pending.add(attempt);
        const socket = this.track(this.#dial());
        const timer = setTimeout(() => socket.destroy(new ProxyError(attempt.stage, 'timeout')), this.#timeoutMs);
        try {
            await event(socket, this.#proxy.scheme === 'https' ? 'secureConnect' : 'connect');
            attempt.stage = 'connect';
            if (!target) return socket;
            await this.#connect(socket, target);
            this.#open.push(target.host);
            socket.once('close', () => this.#open.splice(this.#open.indexOf(target.host), 1));
            return socket;
        } catch (error) {
            socket.destroy();
            if (error instanceof ProxyError || error === this.#ended) throw error;
            throw new ProxyError(attempt.stage, kindOf(error) ?? 'unknown', { cause: error });
        } finally {
            clearTimeout(timer);
            this.#pending.delete(attempt);
        }
    }

    #dial() {
        const { scheme, host, port } = this.#proxy;
        if (scheme !== 'https') return net.connect({ host, port, noDelay: true });
        return tls.connect({ host, port, servername: net.isIP(host) ? '' : host, ALPNProtocols: ['http/1.1'] });
    }

    async #connect(socket, target) {
        const name = authority(target.host, target.port);
        const login = authorization(this.#proxy);
        socket.write(`CONNECT ${name} HTTP/1.1\r\nHost: ${name}\r\n${login ? `Proxy-Authorization: ${login}\r\n` : ''}\r\n`);
        const [head, rest] = await readHead(socket);
        const status = Number(/^HTTP\/1\.[01] ([1-5]\d\d)(?: |\r\n)/.exec(head)?.[1]);
        if (!status) throw new ProxyError('connect', 'malformed');
        if (status < 200 || status > 299) throw new ProxyError('connect', 'status', { status, host: target.host });
        if (rest.length > 0) socket.unshift(rest);
    }

    /** Registers a socket, which the end of the lease destroys. */
    track(socket) {
        this.#sockets.add(socket);
        socket.once('close', () => this.#sockets.delete(socket));
        return socket;
    }

    /** Agents for node:http, node:https, axios and got. */
    get agents() {
        this.#agents ??= { http: new PlainAgent(this, this.#proxy), https: new TunnelAgent(this) };
        return this.#agents;
    }

    /** The option connect of undici's Agent, Pool and Client. */
    connector(tlsOptions) {
        return ({ hostname, port, protocol, servername }, callback) => {
            const secure = protocol === 'https:';
            const host = hostname.replace(/^\[(.*)\]$/, '$1');
            this.open({ host, port: Number(port) || (secure ? 443 : 80) }).then(async (plain) => {
                if (!secure) return plain;
                const socket = this.track(tls.connect({
                    ...tlsOptions, socket: plain, servername: servername || (net.isIP(host) ? '' : host), ALPNProtocols: ['http/1.1'],
                }));
                const timer = setTimeout(() => socket.destroy(Object.assign(new Error('TLS with the target timed out'), { code: 'ETIMEDOUT' })), this.#timeoutMs);
                return event(socket, 'secureConnect').then(() => socket).finally(() => clearTimeout(timer));
            }).then((socket) => callback(null, socket), callback);
        };
    }

    /** Closes all connections, those in use with error, and refuses new ones. */
    close(error) {
        if (this.#ended) return;
        this.#ended = error;
        for (const socket of [...this.#sockets].reverse()) { // TLS before the tunnel below it
            socket.on('error', () => {}).destroy(error); // the library's own listener may be gone by then
        }
        this.#agents?.http.destroy();
        this.#agents?.https.destroy();
    }
}

// PlainAgent sends requests for http: URLs to the proxy itself, in absolute form.
class PlainAgent extends http.Agent {
    #tunnels;
    #login;

    constructor(tunnels, proxy) {
        super({ keepAlive: true });
        this.#tunnels = tunnels;
        this.#login = authorization(proxy);
    }

    addRequest(request, options, ...rest) {
        if (!request.path.startsWith('http:')) {
            const port = Number(options.port) === 80 ? '' : `:${options.port}`;
            request.path = `http://${net.isIPv6(options.host) ? `[${options.host}]` : options.host}${port}${request.path}`;
        }
        if (this.#login) request.setHeader('Proxy-Authorization', this.#login);
        super.addRequest(request, options, ...rest);
    }

    createConnection(_options, callback) {
        this.#tunnels.open().then((socket) => callback(null, socket), callback);
    }
}

// TunnelAgent sends requests for https: URLs through tunnels.
class TunnelAgent extends https.Agent {
    #tunnels;

    constructor(tunnels) {
        super({ keepAlive: true });
        this.#tunnels = tunnels;
    }

    createConnection(options, callback) {
        this.#tunnels.open({ host: options.host, port: options.port }).then((plain) => {
            callback(null, this.#tunnels.track(tls.connect({ ...options, path: undefined, socket: plain })));
        }, callback);
    }
}

// event resolves at an event of the socket, and rejects when it fails or closes before.
function event(socket, name) {
    return new Promise((resolve, reject) => {
        const done = (settle) => (value) => {
            socket.off(name, succeed).off('error', fail).off('close', close);
            settle(value);
        };
        const succeed = done(resolve);
        const fail = done(reject);
        const close = () => fail(Object.assign(new Error('the connection was closed'), { code: 'ECONNRESET' }));
        socket.once(name, succeed).once('error', fail).once('close', close);
    });
}

// readHead returns the head of an HTTP answer as text, and the bytes after it.
async function readHead(socket) {
    let read = Buffer.alloc(0);
    for (;;) {
        const chunk = socket.read();
        if (chunk === null) {
            await event(socket, 'readable'); // fails when the proxy closes
            continue;
        }
        read = Buffer.concat([read, chunk]);
        const end = read.indexOf('\r\n\r\n');
        if (end >= 0) return [read.toString('latin1', 0, end + 4), read.subarray(end + 4)];
        if (read.length > MAX_HEAD || !'HTTP/'.startsWith(read.toString('latin1', 0, 5))) throw new ProxyError('connect', 'malformed');
    }
}
