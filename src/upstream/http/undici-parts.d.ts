/** The parts of undici that a request needs. `undici` itself also loads fetch, WebSocket, caches and mocks: 4 MB that an idle program does not use. */
declare module 'undici/lib/core/connect.js' {
  export { buildConnector as default } from 'undici'
}
declare module 'undici/lib/core/errors.js' {
  import { errors } from 'undici'
  export default errors
}
declare module 'undici/lib/dispatcher/client.js' {
  export { Client as default } from 'undici'
}
declare module 'undici/lib/dispatcher/pool.js' {
  export { Pool as default } from 'undici'
}
