import t from 'tap'
import { seeded } from '../contracts/store/acme.ts'
import { ownKubernetes } from '../servers/kubernetes.ts'
import { strikeOperator } from './operator-chaos.ts'

t.test('an API server that is killed five times under change, and whatever breaks beside it, loses no update and mints nothing twice', async (t) => {
  const server = await ownKubernetes(t)
  if (!server) return
  const { faults, ...report } = await strikeOperator(t, server, { kills: 5, random: seeded(5), tell: (line) => t.comment(line) })
  t.comment(report)
  t.same(faults, [])
})
