/**
 * Keys for signing and encrypting what the store does not keep, derived by HKDF-SHA256 (RFC 5869) from the sealing keys, one for each purpose. They open no
 * API key, and no sealing key follows from them. In each list the first signs or encrypts, and all verify or decrypt, as in the sealing keys.
 */
import { hkdfSync } from 'node:crypto'
import { base64Lines, type SealingKeys } from './api-keys.ts'

/** `info` of HKDF and length in bytes. Changed, they would invalidate every link or id. */
const PURPOSES = {
  /** Signs links to results (`signed-urls.ts`). */
  links: ['tollgate file links v1', 32],
  /** Encrypts the ids of upstreams (`src/upstream/wires/encrypted-ids.ts`). */
  ids: ['tollgate upstream ids', 48],
  /** Seals the cookie of a sign-in that is in progress. */
  signIns: ['tollgate sign-ins v1', 32],
} as const

type Purpose = keyof typeof PURPOSES
const NAMES = Object.keys(PURPOSES) as Purpose[]
const LINE_BYTES = NAMES.reduce((sum, name) => sum + PURPOSES[name][1], 0)

export type KeyList = readonly [Buffer, ...Buffer[]]
export type DerivedKeys = Readonly<Record<Purpose, KeyList>>

/** The keys of every purpose, in the order of the sealing keys. */
export function deriveKeys(sealing: SealingKeys): DerivedKeys {
  return listsOf(([info, length]) => sealing.map((key) => Buffer.from(hkdfSync('sha256', key, '', info, length))) as [Buffer, ...Buffer[]])
}

/** The text of a file of derived keys: for each sealing key one line, in base64, of its keys for every purpose. */
export function formatDerivedKeys(derived: DerivedKeys): string {
  return derived.links
    .map((_, line) => `${Buffer.concat(NAMES.map((name) => derived[name][line] ?? Buffer.alloc(0))).toString('base64')}\n`)
    .join('')
}

/** Reads that text. Returns null if a line is anything else, such as a sealing key, or there is none. */
export function parseDerivedKeys(text: string): DerivedKeys | null {
  const lines = base64Lines(text)
  if (lines.length === 0 || lines.some((line) => line.length !== LINE_BYTES)) return null
  let from = 0
  return listsOf(([, length]) => {
    const list = lines.map((line) => line.subarray(from, from + length)) as [Buffer, ...Buffer[]]
    from += length
    return list
  })
}

function listsOf(list: (purpose: (typeof PURPOSES)[Purpose]) => KeyList): DerivedKeys {
  return Object.fromEntries(NAMES.map((name) => [name, list(PURPOSES[name])])) as DerivedKeys
}
