/** What the page keeps of revealed secrets, without a browser. */
import t from 'tap'

// By a name of its own: the page's modules have the types of a browser. Its clock would keep the process.
const module = '../../plugins/dashboard/web/pages/keys/revealed.ts'
t.intercept(globalThis, 'setInterval', { value: () => 0 })

t.test('a secret that comes after the page was left is dropped', async (t) => {
  const { reveal, revealed, forgetAll } = await import(module)
  const answer = Promise.withResolvers<Response>()
  t.intercept(globalThis, 'fetch', { value: () => answer.promise })
  const asked = reveal({ name: 'ci', rotation_revision: 0 })
  forgetAll()
  answer.resolve(Response.json({ key: 'svc_live_x' }))
  await asked
  t.equal(revealed.value.size, 0)
  t.intercept(globalThis, 'fetch', { value: async () => Response.json({ key: 'svc_live_x' }) })
  await reveal({ name: 'ci', rotation_revision: 0 })
  t.equal(revealed.value.get('ci').secret, 'svc_live_x')
})
