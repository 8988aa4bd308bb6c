# A stack of one or more components: a label for each of them, and a name for the bucket that they share.
#
# Both calls name one module by its address in the registry and leave the exact version to the constraint. When this
# module is published, the version that fits is embedded in it.

module "label" {
  source   = "modules.internal/acme/label/null"
  version  = "~> 1.0"
  for_each = var.components

  namespace  = var.namespace
  stage      = var.stage
  name       = var.name
  attributes = [each.key]
}

# Two slashes lead to a folder inside of a module. The names of buckets are shared by the whole world.
module "bucket_suffix" {
  source  = "modules.internal/acme/label/null//modules/suffix"
  version = "~> 1.0"

  seed   = "${var.namespace}/${var.stage}/${var.name}"
  length = 8
}
