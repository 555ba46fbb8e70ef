/** Removes the libraries of other systems that onnxruntime-node brings, most of its size. npm runs it after an install; plain JavaScript, for an old Node. */
import { readdirSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { arch, platform } from 'node:process'

try {
  const folder = join(dirname(createRequire(import.meta.url).resolve('onnxruntime-node/package.json')), 'bin/napi-v6')
  for (const system of readdirSync(folder)) {
    for (const processor of readdirSync(join(folder, system))) {
      if (system !== platform || processor !== arch) rmSync(join(folder, system, processor), { recursive: true })
    }
  }
} catch (error) {
  // An optional package, which not every system has.
  if (error.code !== 'MODULE_NOT_FOUND') throw error
}
