// Attempts at one URL, each through another proxy, until it is known whether the proxies or the URL are to blame.
import { LeaseError, NoProxy } from './errors.js';
import { isResponse } from './judge.js';

/** See Client.attempts in index.d.ts. */
export async function attempts(client, { attempts: most = 3, judge = judgeByTarget, ...options }, f) {
    const tries = [];
    try {
        for (let verdict = { retry: true }; verdict.retry && tries.length < most;) {
            const lease = await another(client, options, tries);
            if (!lease) break;
            const one = { lease };
            tries.push(one);
            one.result = await settled(f, lease);
            verdict = one.verdict = await judge(lease, one.result.value ?? one.result.error, options);
            if (verdict.report === 'banned') continue; // the lease is kept, for the report
            if (verdict.report && verdict.report !== 'ok') await report(one);
            await lease.release();
        }
        const banned = tries.filter(({ verdict }) => verdict.report === 'banned');
        // Without a page through another proxy the refusal is the URL's doing, unless there was no other proxy.
        if (tries.length === 1 || tries.at(-1).verdict.report === 'ok') await Promise.all(banned.map(report));
    } finally {
        await Promise.all(tries.map(({ lease }) => lease.release()));
    }
    const { result } = tries.at(-1);
    if ('error' in result) throw result.error;
    return result.value;
}

// another leases a proxy that was not tried, or returns undefined when there is none.
async function another(client, options, tries) {
    const tried = tries.map(({ lease }) => `${lease.proxy.namespace}/${lease.proxy.name}`);
    try {
        const more = tried.length > 0 ? { exclude: [...(options.exclude ?? []), ...tried], waitForMatch: false } : {};
        return await client.acquire({ ...options, ...more });
    } catch (error) {
        if (tried.length > 0 && error instanceof NoProxy) return undefined;
        throw error;
    }
}

async function settled(f, lease) {
    try {
        return { value: await f(lease) };
    } catch (error) {
        return { error };
    }
}

function judgeByTarget(lease, outcome, { target }) {
    if (!(outcome instanceof Error) && !isResponse(outcome)) throw new TypeError('attempts: f returned no response: pass the option judge, such as (lease, outcome) => lease.judge(outcome.response)');
    return lease.judge(outcome, { url: target });
}

// A report that fails must not cost the page.
async function report({ lease, verdict }) {
    try {
        await lease.report(verdict.report, verdict);
    } catch (error) {
        if (!(error instanceof LeaseError)) throw error;
    }
}
