/** The built page, without a browser: its size, what it must not contain, and the texts that it shares with the documents. */
import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { CLIENTS, DOC_ADDRESS, DOC_KEY, partsFor } from '../../plugins/dashboard/web/pages/keys/snippets.ts'
import { openEmbeddedProgram } from '../plugins/embedded-program.ts'
import { buildPage, DIST } from './built.ts'

const FIRST_PAGE_BYTES = 100 * 1024
const DOCS = join(import.meta.dirname, '../../docs/clients')

buildPage()
const index = readFileSync(join(DIST, 'index.html'), 'utf8')
const assets = readdirSync(join(DIST, 'assets'))
const gzip = (name: string) => statSync(existsSync(join(DIST, `${name}.gz`)) ? join(DIST, `${name}.gz`) : join(DIST, name)).size

t.test('the first page is under 100 KB gzip, and so is every page with what it loads later', async (t) => {
  const first = ['index.html', ...[...index.matchAll(/(?:src|href)="\/dashboard\/(assets\/[^"]+)"/g)].map(([, name = '']) => name)]
  const bytes = first.reduce((sum, name) => sum + gzip(name), 0)
  t.comment(`${first.length} files, ${bytes} bytes gzip`)
  t.ok(first.length >= 3 && bytes < FIRST_PAGE_BYTES, String(bytes))
  const all = assets.filter((name) => /\.(js|css)$/.test(name)).reduce((sum, name) => sum + gzip(`assets/${name}`), 0)
  t.comment(`${all} bytes gzip of script and style in all`)
  t.ok(all < FIRST_PAGE_BYTES, String(all))
})

t.test('nothing is inline, and nothing comes from elsewhere', async (t) => {
  t.notMatch(index, /<style|style=|<script(?![^>]* src=)|\son\w+=/i)
  t.same([...index.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, url = '']) => url).filter((url) => !url.startsWith('/dashboard/assets/')), [])
  for (const name of assets.filter((each) => /\.(js|css)$/.test(each))) {
    const text = readFileSync(join(DIST, 'assets', name), 'utf8')
    t.notMatch(text, /url\(["']?https?:|import\(["']https?:|@import|sourceMappingURL/, name)
    // The namespaces of SVG and MathML are names, and the snippets hold the schemas that clients want.
    const urls = [...text.matchAll(/https?:\/\/[^\s"'`)\\]+/g)].map(([url]) => url).filter((url) => !/^http:\/\/www\.w3\.org\/|^http:\/\/127\.0\.0\.1:8080|^https:\/\/opencode\.ai\/config\.json$/.test(url))
    t.same(urls, [], name)
  }
})

t.test('each configuration that the page shows is that of docs/clients, to the letter', async (t) => {
  for (const { id, doc, parts } of CLIENTS) {
    const page = readFileSync(join(DOCS, doc), 'utf8')
    for (const { title, text } of parts) t.ok(page.includes(text), `${id}, ${title}: ${doc}`)
  }
})

t.test('a configuration has the address, the key and the brand in place of those of the example', async (t) => {
  for (const client of CLIENTS) {
    const text = partsFor(client, 'https://gate.example', 'Acme', 'svc_live_mine').map((part) => part.text).join('\n')
    t.notOk(text.includes(DOC_ADDRESS) || text.includes(DOC_KEY), client.id)
    t.ok(text.includes('https://gate.example') && text.includes('svc_live_mine'), client.id)
    t.notMatch(text, /tollgate|SVC_API_KEY/i, `${client.id}: the names are those of the service`)
  }
})

t.test('assets are immutable and compressed, the page is never stored, and what is not there is 404', async (t) => {
  const { app } = await openEmbeddedProgram(t)
  const get = (url: string, encoding = 'identity') => app.inject({ url, headers: { host: '127.0.0.1:8080', 'accept-encoding': encoding } })
  const script = assets.find((name) => /^index-.*\.js$/.test(name)) ?? ''
  t.match((await get(`/dashboard/assets/${script}`, 'br')).headers, { 'content-encoding': 'br', 'cache-control': 'public, max-age=31536000, immutable', 'x-content-type-options': 'nosniff' })
  t.match((await get(`/dashboard/assets/${script}`, 'gzip')).headers, { 'content-encoding': 'gzip', vary: /accept-encoding/i })
  t.equal((await get(`/dashboard/assets/${script}`)).headers['content-encoding'], undefined)
  for (const path of ['/', '/keys', '/usage/media', '/usage/coding', '/room', '/tasks', '/tasks/some-id']) {
    t.match(await get(`/dashboard${path}`), { statusCode: 200, headers: { 'cache-control': 'no-store', 'content-type': /^text\/html/, 'content-security-policy': /default-src 'none'; script-src 'self'; style-src 'self';/, 'x-frame-options': 'DENY' } })
  }
  for (const path of ['/assets/none.js', '/assets/..%2findex.html', '/assets/%2e%2e%2fpage.ts', '/assets/.gitignore', '/none']) t.equal((await get(`/dashboard${path}`)).statusCode, 404, path)
})

t.test('an unknown address answers a browser with the page, and a program with JSON', async (t) => {
  const { app } = await openEmbeddedProgram(t)
  const open = (method: 'GET' | 'HEAD' | 'POST', url: string, accept: string) => app.inject({ method, url, headers: { host: '127.0.0.1:8080', accept } })
  for (const url of ['/dashboard/none', '/dashboard/keys/none?x=1', '/dashboard/a%20b']) {
    const page = await open('GET', url, 'text/html,application/xhtml+xml,*/*;q=0.8')
    t.match(page, { statusCode: 404, body: index, headers: { 'content-type': /^text\/html/, 'cache-control': 'no-store', 'content-security-policy': /default-src 'none'/ } }, url)
    for (const accept of ['*/*', 'application/json']) t.match((await open('GET', url, accept)).json(), { error: { code: 'not_found' } }, url)
  }
  t.equal((await open('POST', '/dashboard/none', 'text/html')).statusCode, 404)
  t.match(await open('POST', '/dashboard/keys', 'text/html'), { statusCode: 405, headers: { allow: /GET/ } })
  t.match((await open('GET', '/dashboard/api/none', 'text/html')).json(), { error: { code: 'not_signed_in' } })
})

t.test('an installation without Vite is not broken by prepare, and the build says what it needs', async (t) => {
  const folder = t.testdir({ plugins: { dashboard: { 'build.mjs': readFileSync(join(import.meta.dirname, '../../plugins/dashboard/build.mjs'), 'utf8') } } })
  const build = join(folder, 'plugins/dashboard/build.mjs')
  t.equal(execFileSync(process.execPath, [build, '--if-possible'], { encoding: 'utf8' }), '')
  t.throws(() => execFileSync(process.execPath, [build], { stdio: 'pipe' }), /npm ci/)
})
