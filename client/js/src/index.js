export { Client } from './client.js';
export { APIError, LeaseError, Lost, NoProxy, ProxyError, Released } from './errors.js';
export { judge } from './judge.js';
export { CHROMIUM_ARGS, Lease } from './lease.js';
