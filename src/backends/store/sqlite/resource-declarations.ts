/** Declarations of the `files:` resources, in SQLite. */
import { setImmediate as yieldToEventLoop } from 'node:timers/promises'
import type { Declaration } from '../../resources/resources.ts'
import type { Store } from '../store.ts'
import type { Database } from './database.ts'

export const declarationTables = `
  CREATE TABLE declarations (
    kind TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    declaration TEXT NOT NULL,
    PRIMARY KEY (kind, namespace, name)
  ) STRICT;
`

/** Reading ten thousand declarations at once would block the event loop. */
const PAGE = 250

export function openDeclarations(database: Database): Pick<Store, 'declarations' | 'declare' | 'undeclare'> {
  const page = database.records<Declaration>(
    `SELECT declaration AS record FROM declarations WHERE (kind, namespace, name) > (?, ?, ?) ORDER BY kind, namespace, name LIMIT ${PAGE}`,
  )
  const put = database.prepare('INSERT INTO declarations VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET declaration = excluded.declaration')
  const remove = database.prepare('DELETE FROM declarations WHERE kind = ? AND namespace = ? AND name = ?')

  async function declarations(): Promise<Declaration[]> {
    const found: Declaration[] = []
    for (;;) {
      const { kind, namespace, name } = found.at(-1)?.ref ?? { kind: '', namespace: '', name: '' }
      const some = await database.read(() => page.all(kind, namespace, name))
      found.push(...some)
      if (some.length < PAGE) return found
      await yieldToEventLoop()
    }
  }

  return {
    declarations,
    declare: async (declaration) => {
      const { kind, namespace, name } = declaration.ref
      const text = JSON.stringify(declaration)
      await database.write(() => put.run(kind, namespace, name, text))
    },
    undeclare: async ({ kind, namespace, name }) => void (await database.write(() => remove.run(kind, namespace, name))),
  }
}
