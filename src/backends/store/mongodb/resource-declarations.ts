/** Declarations of the `files:` resources, in MongoDB. */
import type { Declaration, Ref } from '../../resources/resources.ts'
import type { Store } from '../store.ts'
import { isDuplicate } from '../../mongodb/driver-errors.ts'
import type { Database } from './database.ts'

export function openDeclarations(database: Database): Pick<Store, 'declarations' | 'declare' | 'undeclare'> {
  const declarations = database.collection<Declaration & { _id: string }>('declarations')

  async function declare(declaration: Declaration): Promise<void> {
    const put = () => declarations.replaceOne({ _id: idOf(declaration.ref) }, declaration, { upsert: true })
    await put().catch((error: unknown) => {
      // Another process inserted it first: now there is one to replace.
      if (!isDuplicate(error)) throw error
      return put()
    })
  }

  return {
    declarations: () => declarations.find<Declaration>({}, { projection: { _id: 0 }, sort: { _id: 1 } }).toArray(),
    declare,
    undeclare: async (ref) => void (await declarations.deleteOne({ _id: idOf(ref) })),
  }
}

/** None of the three may contain a slash. */
function idOf({ kind, namespace, name }: Ref): string {
  return `${kind}/${namespace}/${name}`
}
