# Names and tags, made the same way everywhere, from inputs alone: nothing is created and no provider is needed.

locals {
  full_id = join("-", compact(concat([var.namespace, var.stage, var.name], var.attributes)))

  # Room for the suffix and the hyphen before it.
  head = trimsuffix(substr(local.full_id, 0, var.max_length - length(module.suffix.value) - 1), "-")
  id   = length(local.full_id) <= var.max_length ? local.full_id : "${local.head}-${module.suffix.value}"

  generated_tags = {
    Name       = local.id
    Namespace  = var.namespace
    Stage      = var.stage
    Attributes = length(var.attributes) > 0 ? join("-", var.attributes) : null
  }
}

module "suffix" {
  source = "./modules/suffix"

  seed = local.full_id
}
