/** Webhook deliveries over Kafka and MongoDB, as in `../webhooks.ts`. */
import type { Distributed } from '../distributed.ts'
import { media } from '../manifests.ts'
import type { Choice } from '../stage.ts'
import type { Table } from '../table.ts'
import { webhookTables } from '../webhooks.ts'
import { ROLES, SETTINGS } from './tasks.ts'

export function distributedWebhooks({ start }: Distributed, { rounds }: Choice): Promise<Table[]> {
  return webhookTables(' over Kafka and MongoDB', rounds, async (_, tenants) => {
    const deployment = await start(media(tenants), ROLES, { ...SETTINGS, EGRESS_ALLOW: '127.0.0.1' })
    const [[gateway], [dispatcher]] = [deployment.of('gateway'), deployment.of('dispatcher')]
    if (!gateway || !dispatcher) throw new Error('there is no gateway or no dispatcher')
    return { url: gateway.url, keys: deployment.keys, cpuMs: dispatcher.cpuMs, stop: deployment.stop }
  })
}
