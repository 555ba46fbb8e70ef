/** Operations over REST. */
import t from 'tap'
import { operationPromises, type Surface } from '../contracts/operations.ts'
import { runContract } from '../contracts/run-contract.ts'

const rest: Surface = {
  create: async (studio, body, key) => (await studio.operate(body, key === undefined ? {} : { 'idempotency-key': key })).json(),
  get: async (studio, id) => (await studio.get(`/api/v1/operations/${id}`)).json(),
  cancel: async (studio, id) => (await studio.post(`/api/v1/operations/${id}/cancel`)).json(),
}

t.test('the contract', (t) => runContract(t, operationPromises(rest), () => null))
