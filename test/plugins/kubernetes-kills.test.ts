import t from 'tap'
import { eventually } from '../flows/eventually.ts'
import { ownKubernetes } from '../servers/kubernetes.ts'
import { agree, coder, KEYS, named } from './agreement.ts'
import { openOperator, type Operator } from './operator.ts'

t.test('an API server that is killed five times under change loses no update and mints nothing twice', async (t) => {
  const server = await ownKubernetes(t)
  if (!server) return
  const operator = await openOperator(t, server.kubeconfig)
  await operator.declare(coder(), ...Array.from({ length: KEYS }, (_, n) => named(n)))
  await operator.start()
  await agree(operator)
  const insist = (...documents: Parameters<Operator['declare']>) => eventually('the change to be taken', async () => operator.declare(...documents).then(() => true, () => null))
  for (let round = 1; round <= 5; round++) {
    const changing = (async () => {
      for (let n = 0; n < KEYS; n++) await insist(named(n, { rotationRevision: round >= 3 ? 1 : 0, state: (n + round) % 3 === 0 ? 'Suspended' : 'Active' }))
    })()
    await server.killApiServer()
    await server.startApiServer()
    await changing
  }
  await agree(operator)
  t.pass()
})
