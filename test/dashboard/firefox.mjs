#!/usr/bin/env node
/**
 * Firefox for playwright-core, which starts this in place of it: the browser of the PATH with its WebDriver BiDi behind a proxy, which answers the commands that
 * playwright-core always sends and this Firefox does not know yet.
 */
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { WebSocket, WebSocketServer } from 'ws'

const UNKNOWN_COMMANDS = ['emulation.setMediaFeaturesOverride']

const firefox = spawn(process.env['FIREFOX'] ?? 'firefox-esr', process.argv.slice(2), { stdio: ['ignore', 'inherit', 'pipe'] })
firefox.once('exit', (code) => process.exit(code ?? 1))
for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.on(signal, () => firefox.kill(signal))

for await (const line of createInterface({ input: firefox.stderr })) {
  const [, address] = /WebDriver BiDi listening on (ws:\/\/\S+)$/.exec(line) ?? []
  if (address === undefined) console.error(line)
  else console.error(`WebDriver BiDi listening on ws://127.0.0.1:${await proxy(address)}`)
}

/** Listens on a free port and forwards each connection to the address. */
async function proxy(address) {
  const server = new WebSocketServer({ host: '127.0.0.1', port: 0 })
  server.on('connection', (client, { url }) => {
    const upstream = new WebSocket(address + url)
    const opened = new Promise((resolve) => upstream.once('open', resolve))
    upstream.on('message', (data) => client.send(data.toString()))
    upstream.on('close', () => client.close())
    client.on('close', () => upstream.close())
    client.on('message', async (data) => {
      await opened
      const text = data.toString()
      const { id, method } = JSON.parse(text)
      if (UNKNOWN_COMMANDS.includes(method)) client.send(JSON.stringify({ type: 'success', id, result: {} }))
      else upstream.send(text)
    })
  })
  await new Promise((resolve) => server.once('listening', resolve))
  return server.address().port
}
