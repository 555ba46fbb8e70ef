import type { Declaration, Ref } from '../../../src/backends/resources/resources.ts'
import type { Promises } from '../run-contract.ts'
import type { Place } from '../store.ts'
import { T0 } from './acme.ts'

function declaration(ref: Ref, generation: number): Declaration {
  const spec = { planRef: { name: 'code' }, state: 'Active', rotationRevision: 0 } as const
  const annotations = { 'tollgate.dev/paused': 'true' }
  return { ref, uid: `uid of ${ref.name}`, createdAt: T0, generation, spec, ...(generation > 1 && { annotations }) }
}

/** The order of declarations is not part of the contract. */
function sorted(declarations: Declaration[]): Declaration[] {
  const text = ({ ref }: Declaration) => `${ref.kind} ${ref.namespace} ${ref.name}`
  return declarations.toSorted((a, b) => (text(a) < text(b) ? -1 : 1))
}

export const declarationPromises: Promises<Place> = {
  'the last declaration of each kind, namespace and name is stored': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    const refs: Ref[] = [
      { kind: 'ApiKey', namespace: 'acme', name: 'a' },
      { kind: 'ApiKey', namespace: 'acme', name: 'b' },
      { kind: 'ApiKey', namespace: 'globex', name: 'a' },
      { kind: 'Plan', namespace: 'acme', name: 'a' },
    ]
    t.same(await store.declarations(), [])
    for (const ref of refs) await store.declare(declaration(ref, 1))
    await other.declare(declaration(refs[1]!, 2))
    const declared = refs.map((ref, i) => declaration(ref, i === 1 ? 2 : 1))
    t.same(sorted(await store.declarations()), declared)

    await store.undeclare(refs[0]!)
    await store.undeclare(refs[0]!)
    t.same(sorted(await other.declarations()), declared.slice(1))
  },

  'all declarations are returned, however many there are': async (t, place) => {
    const store = await place.open()
    const names = Array.from({ length: 1000 }, (_, i) => `k${i}`)
    // A few at once: each needs a connection.
    for (let at = 0; at < names.length; at += 50) {
      await Promise.all(names.slice(at, at + 50).map((name) => store.declare(declaration({ kind: 'ApiKey', namespace: 'acme', name }, 1))))
    }
    t.same((await store.declarations()).map(({ ref }) => ref.name).toSorted(), names.toSorted())
  },
}
