/**
 * `npm run build:dashboard`: builds `web/` to `dist/` with gzip and brotli beside each file. With `--if-possible`, as `prepare` calls it, a checkout without Vite (`npm ci --omit=dev`) or a
 * failed build ends with a sentence and without an error. Plain JavaScript: an installation without development packages runs it on any Node.
 */
import { existsSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { brotliCompressSync, constants, gzipSync } from 'node:zlib'

const WEB = join(import.meta.dirname ?? '.', 'web')
const DIST = join(import.meta.dirname ?? '.', 'dist')
/** A smaller file is not worth a second one. */
const COMPRESSED_FROM_BYTES = 512

const isOptional = process.argv.includes('--if-possible')
const isInstalled =
  existsSync(join(import.meta.dirname ?? '.', '../../node_modules/vite/package.json')) &&
  Number(process.versions.node.split('.', 1)[0]) >= 22
if (!isInstalled) {
  if (!isOptional) {
    console.error('The dashboard is built with Vite, which is not installed: npm ci')
    process.exit(1)
  }
  process.exit(0)
}
try {
  await build()
} catch (error) {
  if (!isOptional) throw error
  console.error(`The dashboard could not be built, npm run build:dashboard shows why: ${error instanceof Error ? error.message : error}`)
}

/** Builds beside `dist/` and swaps the folders, so that a running program never sees a half-written page. */
async function build() {
  const vite = await import('vite')
  const made = `${DIST}.${process.pid}`
  const start = performance.now()
  try {
    await vite.build({
      configFile: false,
      root: WEB,
      base: '/dashboard/',
      logLevel: 'warn',
      oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
      build: {
        outDir: made,
        emptyOutDir: true,
        target: ['chrome125', 'firefox128', 'safari17.5'],
        modulePreload: { polyfill: false },
        assetsInlineLimit: 0,
        reportCompressedSize: false,
        // Names, versions and licence texts of the bundled packages, for image/sbom.ts. It is not served.
        license: { fileName: 'licenses.json' },
      },
    })
    compress(made)
    if (existsSync(DIST)) renameSync(DIST, `${made}.old`)
    renameSync(made, DIST)
  } finally {
    for (const left of [made, `${made}.old`]) rmSync(left, { recursive: true, force: true })
  }
  console.log(`The dashboard is built in ${Math.round(performance.now() - start)} ms: ${DIST}`)
}

function compress(folder) {
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    const file = join(entry.parentPath, entry.name)
    if (!entry.isFile() || !/\.(js|css|html|svg)$/.test(entry.name)) continue
    const bytes = readFileSync(file)
    if (bytes.length < COMPRESSED_FROM_BYTES) continue
    writeFileSync(`${file}.gz`, gzipSync(bytes, { level: 9 }))
    writeFileSync(
      `${file}.br`,
      brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length } }),
    )
  }
}
