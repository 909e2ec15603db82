// Crawls the URLs of the command line through leased proxies and prints one line of JSON for each page.
//
//   npm install && DISCOVERY_URL=http://127.0.0.1:8090 DISCOVERY_TOKEN=... node crawl.mjs https://shop.example/
import { Configuration, HttpCrawler, ProxyConfiguration } from '@crawlee/http';
import { LeasedProxies } from './leasedproxies.mjs';

const proxies = new LeasedProxies({ url: process.env.DISCOVERY_URL, token: process.env.DISCOVERY_TOKEN, patienceSeconds: 20 });
const crawler = new HttpCrawler(
    {
        proxyConfiguration: new ProxyConfiguration({ newUrlFunction: proxies.newUrlFunction }),
        preNavigationHooks: [proxies.beforeNavigation],
        maxConcurrency: 1,
        sessionPoolOptions: { maxPoolSize: 1 }, // the number of proxies in use at a time
        ignoreSslErrors: false,
        additionalMimeTypes: ['text/plain'],
        requestHandler: ({ request, body, session }) => {
            console.log(JSON.stringify({ url: request.url, text: body.toString(), session: session.id }));
        },
        failedRequestHandler: ({ request }, error) => console.log(JSON.stringify({ url: request.url, error: error.message })),
    },
    new Configuration({ persistStorage: false }),
);
try {
    await crawler.run(process.argv.slice(2));
} finally {
    await proxies.close();
}
