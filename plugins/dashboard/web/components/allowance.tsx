/** The amounts of an allowance, the same wherever one is shown. */
import type { ComponentChildren } from 'preact'
import { Amount, Fact } from './card.tsx'

type Props = { of: { remaining: string; burned: string; held: string; allowance: string }; children?: ComponentChildren }

/** What is left of an allowance, what was spent and is held of it, and itself. `children` are further facts. */
export function AllowanceFacts({ of: { remaining, burned, held, allowance }, children }: Props) {
  return (
    <dl class="facts">
      <Fact name="Remaining" isBig>
        <Amount of={remaining} />
      </Fact>
      <Fact name="Spent">
        <Amount of={burned} />
      </Fact>
      <Fact name="On hold">
        <Amount of={held} />
      </Fact>
      <Fact name="Allowance">
        <Amount of={allowance} />
      </Fact>
      {children}
    </dl>
  )
}
