/** The model catalogue of Codex (`models` of `GET /v1/models`), with the system prompt that Codex takes from it. */
import { MODEL } from '../../src/upstream/wires/model-name.ts'

const EFFORTS = {
  low: 'Fast answers with little reasoning',
  medium: 'Balances speed and depth',
  high: 'More reasoning for hard problems',
}

/** Tokens; Codex compacts a conversation before it reaches this. Used when no upstream declares a context window. */
const DEFAULT_CONTEXT_WINDOW = 128_000

/**
 * The one model. Codex CLI rejects a catalogue that lacks a required member; these are the members of versions 0.99 to 0.169, and 0.169 is
 * tested. `declared`: the context window in tokens, or null when no upstream declares one.
 */
export function codexModel(declared: number | null): object {
  const contextWindow = declared ?? DEFAULT_CONTEXT_WINDOW
  return {
    slug: MODEL,
    display_name: MODEL,
    description: 'A model for coding, agents included.',
    default_reasoning_level: null,
    supported_reasoning_levels: Object.entries(EFFORTS).map(([effort, description]) => ({ effort, description })),
    shell_type: 'unified_exec',
    visibility: 'list',
    supported_in_api: true,
    priority: 0,
    additional_speed_tiers: [],
    service_tiers: [],
    availability_nux: null,
    upgrade: null,
    base_instructions: INSTRUCTIONS,
    model_messages: null,
    supports_reasoning_summaries: false,
    supports_reasoning_summary_parameter: false,
    default_reasoning_summary: 'none',
    support_verbosity: false,
    default_verbosity: null,
    apply_patch_tool_type: null,
    web_search_tool_type: 'text',
    truncation_policy: { mode: 'tokens', limit: 10_000 },
    supports_parallel_tool_calls: true,
    supports_image_detail_original: false,
    context_window: contextWindow,
    max_context_window: contextWindow,
    effective_context_window_percent: 95,
    experimental_supported_tools: [],
    input_modalities: ['text', 'image'],
    supports_search_tool: false,
    use_responses_lite: false,
    tool_mode: 'direct',
  }
}

const INSTRUCTIONS = `You are a coding agent. You work in a terminal, in the folder of a project, together with the person it belongs to.

Find out before you act: read the files that matter and search the project rather than guess. Follow the instructions
that the project keeps for agents (AGENTS.md in the folder of a file or above it; the nearest one wins, and what the
person says wins over all). Use the conventions, libraries and tools that are already there.

Carry a task to its end. Make the smallest change that solves the cause, keep to what was asked, and leave unrelated
code alone. Do not revert changes that you did not make. Ask only when the answer cannot be found and a wrong guess
would cost much; otherwise choose what is sensible and say what you assumed.

Run commands with the tools you are given. Prefer fast searches such as rg. Before a command that deletes, overwrites or
sends something outside, be sure that it is what the person wants; when the environment asks for approval, say in a
sentence why it is needed. Never print or store secrets.

Check your work: run the tests, the build or the program that shows the change works, starting with the narrowest. If
something cannot be checked, say so. Do not claim what you have not seen.

While you work, tell in a short sentence what you are about to do before a group of commands. At the end, say what
changed and where, what you ran and what it showed, and what is left. Be brief and factual, name files by their path,
and put code and commands in backticks.
`
