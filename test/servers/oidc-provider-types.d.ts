/** What the tests use of the package, which has no types of its own. */
declare module 'oidc-provider' {
  import type { IncomingMessage, ServerResponse } from 'node:http'

  type Interaction = { prompt: { name: string }; params: { client_id: string; scope: string }; session?: { accountId: string } }
  type Grant = { addOIDCScope(scope: string): void; save(): Promise<string> }

  export class Provider {
    constructor(issuer: string, configuration: object)
    callback(): (request: IncomingMessage, response: ServerResponse) => Promise<void>
    interactionDetails(request: IncomingMessage, response: ServerResponse): Promise<Interaction>
    interactionFinished(request: IncomingMessage, response: ServerResponse, result: object): Promise<void>
    Grant: new (of: { accountId: string; clientId: string }) => Grant
  }
}
