import { api } from '../../api/client.ts'
import type { Key } from '../../api/keys.ts'
import { isActive, isMedia, type Plan } from '../../api/plans.ts'
import { Card } from '../../components/card.tsx'
import { Icon, type IconName } from '../../components/icon.tsx'
import { useLoad } from '../../components/load.tsx'
import { hrefOf } from '../../router.ts'

type Step = { icon: IconName; title: string; text: string; action: string; path: string; isDone: boolean }

/**
 * What a newcomer does next, by what the plans unlock, until a key is used. A step that is done says so; until the keys are there, theirs
 * count as done, so that a card that goes again does not flash.
 */
export function FirstSteps({ plans }: { plans: Plan[] }) {
  const active = plans.filter(isActive)
  const loaded = useLoad(() => api<{ data: Key[] }>('/keys'), [active.map(({ name }) => name).join()]).value.value
  const steps = stepsOf(active, loaded.state === 'ready' ? loaded.data.data : null)
  if (steps.every(({ isDone }) => isDone)) return null
  return (
    <Card title="First steps">
      <ol class="steps">
        {steps.map(({ icon, title, text, action, path, isDone }) => (
          <li key={title} class={isDone ? 'done' : ''}>
            <h3>
              <span class="step-icon">
                <Icon name={isDone ? 'check' : icon} />
              </span>
              {title}
              {isDone && <span class="visually-hidden"> (done)</span>}
            </h3>
            <p class="muted">{text}</p>
            <a class={isDone ? 'button small' : 'button small primary'} href={hrefOf(path)}>
              {action}
            </a>
          </li>
        ))}
      </ol>
    </Card>
  )
}

function stepsOf(active: Plan[], keys: Key[] | null): Step[] {
  if (active.length === 0) return []
  const media = active.some(isMedia)
  const isUsed = keys === null || keys.some(({ last_used_at: usedAt }) => usedAt !== null)
  return [
    ...(media
      ? [
          {
            icon: 'spark' as const,
            title: 'Make an image',
            text: 'Write a prompt in the AI Room, see its price, and watch it appear. No key, no code.',
            action: 'Open the AI Room',
            path: '/room',
            isDone: isUsed || active.some(({ summary: { media } }) => Number(media?.burned ?? 0) > 0),
          },
        ]
      : []),
    {
      icon: 'key',
      title: 'Issue an API key',
      text: 'A key belongs to one plan. You can rotate it without a pause, suspend it and revoke it.',
      action: 'API Keys',
      path: '/keys',
      isDone: keys === null || keys.length > 0,
    },
    {
      icon: 'code',
      title: 'Connect your tools',
      text: 'Configurations for Codex, opencode, Cline, the OpenAI SDKs and MCP clients, with your address and key filled in.',
      action: 'Snippets',
      path: '/keys#clients',
      isDone: isUsed,
    },
  ]
}
