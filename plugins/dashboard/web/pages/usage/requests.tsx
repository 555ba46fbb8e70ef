/** The newest coding requests, one by one: when, by which key, tokens of each class, how it ended and how long it took. */
import { useState } from 'preact/hooks'
import { apiUrl } from '../../api/client.ts'
import { codingRequests, type CodingRequest } from '../../api/usage.ts'
import { Card } from '../../components/card.tsx'
import { Icon } from '../../components/icon.tsx'
import { Async, useLoad } from '../../components/load.tsx'
import { Badge } from '../../components/states.tsx'
import { DataTable } from '../../components/table.tsx'
import { count, exact, label } from '../../format.ts'

const REQUESTS_MS = 5000

export function Requests({ plan }: { plan: string }) {
  const [cursor, setCursor] = useState<string | null>(null)
  const load = useLoad((abort) => codingRequests(plan, cursor, abort), [plan, cursor], REQUESTS_MS)
  return (
    <Card
      title="Requests"
      hint="The newest thousand that were admitted, some seconds after their end. Prompts and answers are never kept."
      actions={
        <a class="button small" href={apiUrl('/usage/coding/requests', { plan, format: 'csv' })} download={`${plan}-requests.csv`}>
          <Icon name="download" size={16} /> Requests as CSV
        </a>
      }
    >
      <Async of={load} lines={4}>
        {({ data, next_cursor: next }) => (
          <>
            {data.length === 0 ? <p class="muted">None yet.</p> : <List requests={data} />}
            {(cursor !== null || next !== null) && (
              <nav class="row" aria-label="Pages of requests">
                {cursor !== null && (
                  <button type="button" class="button small" onClick={() => setCursor(null)}>
                    Newest
                  </button>
                )}
                {next !== null && (
                  <button type="button" class="button small" onClick={() => setCursor(next)}>
                    Older <Icon name="chevron" size={16} />
                  </button>
                )}
              </nav>
            )}
          </>
        )}
      </Async>
    </Card>
  )
}

const tokens = (value: number | null): string => (value === null ? '–' : count(value))

function List({ requests }: { requests: CodingRequest[] }) {
  return (
    <DataTable
      caption="Coding requests, newest first"
      rows={requests}
      keyOf={({ id }) => id}
      columns={[
        { name: 'Time', cell: ({ time }) => exact(time) },
        { name: 'Key', cell: ({ key }) => key ?? 'removed' },
        { name: 'Outcome', cell: (request) => <Outcome {...request} /> },
        { name: 'Input', number: true, cell: ({ input }) => tokens(input) },
        { name: 'Of it cached', number: true, cell: ({ cached_input: cached }) => tokens(cached) },
        { name: 'Output', number: true, cell: ({ output }) => tokens(output) },
        { name: 'Charged', number: true, cell: ({ charged }) => tokens(charged) },
        { name: 'Duration', number: true, cell: ({ duration_ms: ms }) => (ms < 1000 ? `${ms} ms` : `${(ms / 1000).toFixed(1)} s`) },
      ]}
    />
  )
}

function Outcome({ outcome, status }: CodingRequest) {
  const tone = outcome === 'completed' ? 'ok' : outcome === 'client_left' ? 'warn' : 'danger'
  return <Badge tone={tone}>{outcome === 'completed' || outcome === 'client_left' ? label(outcome) : `${status} ${label(outcome)}`}</Badge>
}
