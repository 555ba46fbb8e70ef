/**
 * `npm run servers [name …]`: installs the test servers and clients, or the named entries only. Installed entries
 * stay; each entry has a lock, so that two runs share the work. Exits with 1 when an installation failed, after trying the rest.
 */
import { mkdir } from 'node:fs/promises'
import { CACHE, fill, find, folderOf } from './cache.ts'
import type { Entry } from './cache.ts'
import { BY_NAME, LIST } from './list.ts'
import { locked } from './lock.ts'

function seconds(since: number): string {
  return `${((performance.now() - since) / 1000).toFixed(1)} s`
}

async function have(entry: Entry): Promise<boolean> {
  const title = `${entry.name} ${entry.version}`
  // Checked under the lock: another run may have installed it meanwhile.
  if (find(entry)) {
    console.log(`${title}: installed`)
    return true
  }
  const lacking = await entry.lacks()
  if (lacking) {
    console.log(`${title}: cannot be installed, it ${lacking}`)
    return false
  }
  const start = performance.now()
  try {
    await fill(entry)
    console.log(`${title}: installed in ${seconds(start)}, ${folderOf(entry)}`)
    return true
  } catch (error) {
    console.log(`${title}: the installation failed after ${seconds(start)}: ${error instanceof Error ? error.message : error}`)
    return false
  }
}

const names = process.argv.slice(2)
const known = [...LIST, ...BY_NAME]
const unknown = names.filter((name) => !known.some((entry) => entry.name === name))
if (unknown.length > 0) {
  console.log(`There is no ${unknown.join(', no ')}. Known are: ${known.map((entry) => entry.name).join(', ')}.`)
  process.exit(1)
}
const wanted = names.length > 0 ? known.filter((entry) => names.includes(entry.name)) : LIST
const start = performance.now()
await mkdir(CACHE, { recursive: true })
let had = 0
for (const entry of wanted) {
  const waiting = (): void => console.log(`Another run is installing ${entry.name}; waiting for it.`)
  await locked(`${folderOf(entry)}.lock`, waiting, async () => {
    if (await have(entry)) had++
  })
}
console.log(`${had} of ${wanted.length} in ${CACHE} after ${seconds(start)}`)
if (had < wanted.length) process.exitCode = 1
