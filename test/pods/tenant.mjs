/** Program of the tenant's pod: with the mounted keys it completes a chat, and creates and downloads an image. Prints one line of JSON. Arguments: the gateways' URL, the folder of the keys. */
import { readFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'

const [gateway, keys] = process.argv.slice(2)
// The test runner treats every program in a given folder as a test.
if (gateway === undefined) process.exit()

async function call(product, path, body) {
  const headers = { authorization: `Bearer ${readFileSync(`${keys}/${product}/api-key`, 'utf8')}`, 'content-type': 'application/json' }
  const answer = await fetch(`${gateway}${path}`, { method: body ? 'POST' : 'GET', headers, ...(body && { body: JSON.stringify(body) }) })
  if (!answer.ok) throw new Error(`${path} was answered ${answer.status}: ${await answer.text()}`)
  return answer
}

const chat = await (await call('coding', '/v1/chat/completions', { model: 'svc-code', stream: true, messages: [{ role: 'user', content: 'Count.' }] })).text()
let task = await (await call('media', '/api/v1/generations', { kind: 'image', prompt: 'a lighthouse', size: '256x256' })).json()
while (!['completed', 'failed'].includes(task.status)) {
  await pause(200)
  task = await (await call('media', `/api/v1/generations/${task.id}`)).json()
}
// The public address is that of an Ingress, which this node does not have.
const { pathname, search } = new URL(task.result.image_url)
const picture = await fetch(`${gateway}${pathname}${search}`)
const bytes = Buffer.from(await picture.arrayBuffer())
console.log(JSON.stringify({ chat: chat.trimEnd().split('\n').at(-1), task, picture: { status: picture.status, link: task.result.image_url, type: bytes.toString('latin1', 1, 4), bytes: bytes.length } }))
