variables {
  namespace = "acme"
  name      = "shop"
}

run "joins_what_is_given" {
  command = plan

  variables {
    stage      = "production"
    attributes = ["api", "2"]
  }

  assert {
    condition     = output.id == "acme-production-shop-api-2"
    error_message = "The identifier is ${output.id}."
  }

  assert {
    condition     = output.tags["Attributes"] == "api-2"
    error_message = "The attributes' tag is ${output.tags["Attributes"]}."
  }
}

run "leaves_out_what_is_not" {
  command = plan

  assert {
    condition     = output.id == "acme-shop"
    error_message = "The identifier is ${output.id}."
  }

  assert {
    condition     = !contains(keys(output.tags), "Stage")
    error_message = "There is a tag for a stage that was not given."
  }
}

run "own_tags_win" {
  command = plan

  variables {
    tags = { Name = "The shop" }
  }

  assert {
    condition     = output.tags["Name"] == "The shop"
    error_message = "The name's tag is ${output.tags["Name"]}."
  }
}

run "cuts_what_is_too_long" {
  command = plan

  variables {
    attributes = ["one", "two", "three"]
    max_length = 20
  }

  assert {
    condition     = length(output.id) <= 20 && startswith(output.id, "acme-shop-one")
    error_message = "The identifier is ${output.id}."
  }
}

run "refuses_upper_case" {
  command = plan

  variables {
    name = "Shop"
  }

  expect_failures = [var.name]
}
