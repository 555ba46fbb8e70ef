/** A service without keys or plans of its own: answers each request with what it got, as text. */
import { createServer } from 'node:http'

createServer((request, response) => {
  response.writeHead(200, { 'content-type': 'text/plain' })
  response.write(`${request.method} ${request.url} for ${request.headers['x-svc-tenant']}\n`)
  request.pipe(response)
}).listen(9000, '127.0.0.1')
