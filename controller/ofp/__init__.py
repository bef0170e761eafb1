"""Pure OpenFlow: pipeline, intents to rules, difference of rules, message bytes."""
