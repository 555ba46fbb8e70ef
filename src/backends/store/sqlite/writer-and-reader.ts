/** The verbs of the store on two threads: one writes, one reads. */
import type { RecordRows, Records } from './records.ts'
import type { SubscriptionRow } from './subscriptions.ts'
import { startThread, type Thread } from './database-thread.ts'
import { VERB_ACCESS, type Verbs } from './database-verbs.ts'

export type Threads = {
  verbs: Verbs
  replaceRecord: RecordRows['replaceRecord']
  close(): Promise<void>
}

/** Opens the file in both threads; fails as `openDatabase` does. `lost` is called when the writer ended by itself. */
export async function openThreads(file: string, lost: Records['forget']): Promise<Threads> {
  const writer = startThread({ file, kind: 'writer' }, lost)
  const reader = startThread({ file, kind: 'reader' }, () => {})
  const close = async (): Promise<void> => {
    await writer.close()
    await reader.close()
  }
  try {
    const names = await writer.open()
    // The file and its schema are there now.
    await reader.open()
    return { verbs: verbsOf(names as (keyof Verbs)[], writer, reader), replaceRecord: replacing(writer), close }
  } catch (error) {
    await close()
    throw error
  }
}

function verbsOf(names: (keyof Verbs)[], writer: Thread, reader: Thread): Verbs {
  const verb = (name: keyof Verbs) => {
    const thread = VERB_ACCESS[name] === 'read' ? reader : writer
    return (...args: unknown[]) => thread.call(name, args)
  }
  return Object.fromEntries(names.map((name) => [name, verb(name)])) as unknown as Verbs
}

/** About the bytes of a row. */
function sizeOf({ record, holds }: SubscriptionRow): number {
  return holds.written.reduce((size, chunk) => size + chunk.holds.length, record.length)
}

function replacing(writer: Thread): Threads['replaceRecord'] {
  return async (row, expected, replaced) => {
    const answered = (outcome: unknown) => {
      if (outcome === 'replaced') replaced()
    }
    return (await writer.call('replaceRecord', [row, expected], sizeOf(row), answered)) as 'replaced' | 'conflict'
  }
}
