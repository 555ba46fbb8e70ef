/** Sealing keys, read from SEALING_KEY_FILE and created by the embedded side at its first start, and the keys derived from them, or those of DERIVED_KEYS_FILE. */
import { randomBytes, randomUUID } from 'node:crypto'
import { link, mkdir, readFile, unlink, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import type { Config } from '../config/config.ts'
import { ConfigError } from '../config/setting-types.ts'
import { isDistributed } from '../config/startup-checks.ts'
import { open, parseSealingKeys, type KeyVersion, type SealingKeys } from '../domain/api-keys.ts'
import { deriveKeys, parseDerivedKeys, type DerivedKeys } from '../domain/derived-keys.ts'
import type { Store } from '../backends/store/store.ts'

/** The keys of a process; no sealing keys with DERIVED_KEYS_FILE. Throws a `ConfigError` when a file is missing, unreadable or malformed. */
export async function openKeys(config: Config, store: Store): Promise<{ sealingKeys: SealingKeys | null; derivedKeys: DerivedKeys }> {
  const file = config.DERIVED_KEYS_FILE
  if (file === null) {
    const sealingKeys = await openSealingKeys(config, store)
    return { sealingKeys, derivedKeys: deriveKeys(sealingKeys) }
  }
  const derivedKeys = parseDerivedKeys(await readText('DERIVED_KEYS_FILE', file))
  if (!derivedKeys) throw new ConfigError('DERIVED_KEYS_FILE', file, 'a file that tollgate derive-keys wrote')
  return { sealingKeys: null, derivedKeys }
}

/** Reads the sealing keys. Throws a `ConfigError` when the file is missing, unreadable or malformed. */
async function openSealingKeys(config: Config, store: Store): Promise<SealingKeys> {
  const file = config.SEALING_KEY_FILE
  const text = await readFile(file, 'utf8').catch(async (error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT' || isDistributed(config))
      throw new ConfigError('SEALING_KEY_FILE', file, `a file that can be read (${error.code})`)
    if ((await store.keysAlive('', 1)).length > 0)
      throw new ConfigError('SEALING_KEY_FILE', file, 'the file that sealed the keys of this store, and that is gone: put it back')
    return make(file)
  })
  return parsed(file, text)
}

const PAGE = 100

/** Whether the sealing keys are those of the store: they open an API key of it, or it has none. Throws `Unavailable`. */
export async function fitStore(sealing: SealingKeys, store: Pick<Store, 'keysAlive'>): Promise<boolean> {
  let isSealed = false
  // All are tried: an installation may have lost a line that some of them need.
  for (let after: string | undefined = ''; after !== undefined;) {
    const page: KeyVersion[] = await store.keysAlive(after, PAGE)
    const sealed = page.filter((version) => version.sealed !== null)
    if (sealed.some((version) => open(version.sealed, version.id, sealing) !== null)) return true
    isSealed ||= sealed.length > 0
    after = page.at(-1)?.id
  }
  return !isSealed
}

/** Reads the sealing keys of a file, which must be there. Throws a `ConfigError` like `openSealingKeys`. */
export async function readSealingKeys(file: string): Promise<SealingKeys> {
  return parsed(file, await readText('SEALING_KEY_FILE', file))
}

/** The text of the file of `setting`. Throws a `ConfigError`. */
export function readText(setting: string, file: string): Promise<string> {
  return readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
    throw new ConfigError(setting, file, `a file that can be read (${error.code})`)
  })
}

function parsed(file: string, text: string): SealingKeys {
  const keys = parseSealingKeys(text)
  if (!keys) throw new ConfigError('SEALING_KEY_FILE', file, 'a file with 32 bytes in base64 on each line')
  return keys
}

async function make(file: string): Promise<string> {
  const made = `${randomBytes(32).toString('base64')}\n`
  await mkdir(dirname(file), { recursive: true, mode: 0o700 })
  // Written atomically and never over an existing file: without it every sealed key is lost.
  const temporary = `${file}.${randomUUID()}`
  await writeFile(temporary, made, { mode: 0o600, flag: 'wx', flush: true })
  await link(temporary, file).finally(() => unlink(temporary))
  return made
}
