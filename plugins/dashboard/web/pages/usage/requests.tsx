/** The newest coding requests, one by one: when, by which key, tokens of each class, how it ended and how long it took. */
import { useState } from 'preact/hooks'
import { downloadUrl } from '../../api/client.ts'
import { codingRequests, type CodingRequest } from '../../api/usage.ts'
import { Card } from '../../components/card.tsx'
import { SelectField } from '../../components/field.tsx'
import { Icon } from '../../components/icon.tsx'
import { Async, useLoad } from '../../components/load.tsx'
import { Pages } from '../../components/pages.tsx'
import { Badge } from '../../components/states.tsx'
import { DataTable } from '../../components/table.tsx'
import { count, exact, label } from '../../format.ts'

const REQUESTS_MS = 5000

export function Requests({ plan, keys }: { plan: string; keys: string[] }) {
  const [{ key, cursor }, show] = useState({ key: '', cursor: '' })
  const load = useLoad((abort) => codingRequests(plan, key, cursor, abort), [plan, key, cursor], REQUESTS_MS)
  return (
    <Card
      title="Requests"
      hint="The newest thousand that were admitted, some seconds after their end. Prompts and answers are never kept."
      actions={
        <a
          class="button small"
          href={downloadUrl('/usage/coding/requests', { plan, key, format: 'csv' })}
          download={`${plan}-requests.csv`}
        >
          <Icon name="download" size={16} /> Requests as CSV
        </a>
      }
    >
      {keys.length > 1 && (
        <div class="filters">
          <SelectField
            label="Key"
            value={key}
            choices={[{ value: '', name: 'All' }, ...keys.map((name) => ({ value: name, name }))]}
            choose={(name) => show({ key: name, cursor: '' })}
          />
        </div>
      )}
      <Async of={load} lines={4}>
        {({ data, next_cursor: next }) => (
          <>
            {data.length === 0 ? <p class="muted">None yet.</p> : <List requests={data} />}
            <Pages of="requests" isFirst={cursor === ''} next={next} show={(at) => show({ key, cursor: at ?? '' })} />
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
